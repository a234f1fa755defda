"""Plans for Parley's own CPU engine beside the engine's own sizes, and beside what its process really takes."""

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference.artifacts.config import decoder_spec_from_config
from inference.artifacts.families import FAMILIES
from inference.client import EngineProcess
from inference.engine.runner import load_runner
from inference.planner import Device, Plan, plan_cpu_engine, read_model, shape_from_config
from inference.planner.cpu_engine import is_plain
from inference.planner.cpu_torch_engine import NATIVE
from inference.protocol import Embed, StepOutput, Submit
from inference.spec import EngineConfig, Mode, SamplingParams
from tests.inference.planner import published
from tests.tiny_models import write_tiny_llama

MACHINE = Device(name="machine", kind="cpu", memory_bytes=8 * 10**9)
THREADS = 2
CONTEXT, REQUESTS = 256, 4


def planned(engine: EngineConfig, *, concurrency: int, memory: int = MACHINE.memory_bytes,
            free: int | None = None) -> Plan:
    model = read_model(Path(engine.model))
    return plan_cpu_engine(model.config, engine=engine, threads=THREADS, concurrency=concurrency, stored=model.stored,
                           free_bytes=free, device=Device(name="machine", kind="cpu", memory_bytes=memory))


@pytest.mark.parametrize("changes", [
    {}, {"tie_word_embeddings": False}, {"head_dim": 48}, {"intermediate_size": 100, "attention_bias": True},
])
def test_the_plan_has_the_engines_own_sizes(changes: dict[str, Any], tmp_path: Path) -> None:
    write_tiny_llama(tmp_path, **changes)
    config = EngineConfig(model=str(tmp_path), mode="float32", max_model_len=100, max_num_seqs=3, threads=THREADS,
                          kv_cache_bytes=2**20)
    runner = load_runner(config, on_progress=lambda phase, done, total: None)
    made = planned(config, concurrency=3)
    assert made.weights_bytes == runner.weights_bytes
    assert made.kv_bytes_per_token * runner.num_blocks * runner.block_size == runner.kv_cache_bytes
    assert made.kv_bytes == made.kv_room_bytes == 2**20
    assert made.kv_bytes_per_request == 7 * 16 * made.kv_bytes_per_token  # whole blocks
    assert made.activation_bytes == pytest.approx(sum(array.nbytes for array in runner._buffers), rel=0.05)


def test_a_cache_without_a_set_size_is_planned_as_the_engine_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that counts on more than the engine takes would promise requests that then wait for one another."""
    write_tiny_llama(tmp_path)
    config = EngineConfig(model=str(tmp_path), mode="float32", max_model_len=100, max_num_seqs=400, threads=THREADS,
                          max_num_batched_tokens=400)
    all_fit = planned(config, concurrency=400)
    taken = all_fit.weights_bytes + all_fit.runtime_bytes
    free = taken + 2 * all_fit.kv_bytes  # a quarter of the rest is half of what all requests would take
    made = planned(config, concurrency=400, free=free)
    monkeypatch.setattr("inference.layers.kv_pool.machine_memory", lambda: (free - taken, free))
    runner = load_runner(config, on_progress=lambda phase, done, total: None)
    block = made.kv_bytes_per_token * 16
    assert runner.kv_cache_bytes == made.kv_bytes // block * block
    assert all_fit.fits and not made.fits
    assert made.max_concurrency == made.kv_bytes // made.kv_bytes_per_request == 200
    assert f"With a KV budget of {all_fit.kv_bytes:,} bytes it fits." in made.reasons
    asked = dataclasses.replace(config, kv_cache_bytes=all_fit.kv_bytes)
    assert planned(asked, concurrency=400, free=free).fits


@pytest.mark.parametrize("config", [
    published.LLAMA_70B, published.QWEN25_72B, published.MIXTRAL_8X7B, published.QWEN3_30B_A3B, published.GPT_OSS_20B,
    published.LLAMA_70B | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                            "original_max_position_embeddings": 8192}},
    published.LLAMA_70B | {"model_type": "mistral", "sliding_window": 4096},
    published.LLAMA_70B | {"model_type": "mistral", "sliding_window": None},
])
def test_the_plan_knows_which_runner_the_engine_takes(config: dict[str, Any]) -> None:
    usual = {"rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 1e6}
    spec = decoder_spec_from_config(usual | config, {})
    assert is_plain(shape_from_config(config)) == spec.is_plain


def test_the_plan_knows_the_engines_families() -> None:
    assert set(FAMILIES) == NATIVE


class Engine:
    """An engine process that says when requests have ended."""

    def __init__(self, config: EngineConfig, folder: Path) -> None:
        self._ended = threading.Condition()
        self._reasons: list[str] = []
        self.process = EngineProcess.start(config, socket_dir=folder, on_frame=self._take,
                                           on_lost=lambda reason: None)
        self.ready = self.process.wait_ready(250)

    def _take(self, frame: object) -> None:
        with self._ended:
            if isinstance(frame, StepOutput):
                self._reasons += [delta.finish_reason for delta in frame.deltas if delta.finish_reason]
            self._ended.notify_all()

    def wait(self, count: int) -> None:
        with self._ended:
            assert self._ended.wait_for(lambda: len(self._reasons) >= count, 100)
            self._reasons.clear()

    def fill(self, requests: int) -> int:
        """Run so many requests of the whole context at once; return how often one was preempted."""
        before = self.process.stats().preemptions
        params = SamplingParams(max_tokens=CONTEXT - 16, ignore_eos=True, temperature=0)
        for number in range(requests):
            prompt = [1000 + number, *range(200, 215)]  # no prefix in common
            self.process.submit(Submit(request_id=f"{time.monotonic()}", prompt_ids=prompt, params=params))
        self.wait(requests)
        return self.process.stats().preemptions - before

    def resident_bytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.fixture
def started(tmp_path: Path) -> Any:
    engines: list[Engine] = []

    def start(config: EngineConfig) -> Engine:
        engines.append(Engine(config, tmp_path / "sockets"))
        return engines[-1]

    yield start
    for engine in engines:
        engine.process.stop()


def chat_config(path: Path, mode: Mode, **changes: Any) -> EngineConfig:
    return EngineConfig(model=str(path), mode=mode, max_model_len=CONTEXT, max_num_seqs=REQUESTS + 1, threads=THREADS,
                        speculation=False, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", pytest.param("float32", marks=pytest.mark.soak)])
def test_the_demo_chat_model_takes_what_was_planned(
    mode: Mode, demo_chat_path: Path, started: Callable[[EngineConfig], Engine]
) -> None:
    """As many requests as planned run without preemption, one more with it, in the memory that was planned."""
    first = started(chat_config(demo_chat_path, mode, kv_cache_bytes=2**24))
    first.fill(1)  # now whatever compiles is on disk: a process that has compiled keeps a compiler's memory
    first.process.stop()
    most = planned(chat_config(demo_chat_path, mode), concurrency=REQUESTS)
    memory = most.total_bytes + most.kv_bytes_per_request // 2
    made = planned(chat_config(demo_chat_path, mode), concurrency=REQUESTS, memory=memory)
    assert made.fits and made.max_concurrency == REQUESTS
    budget = memory - (made.total_bytes - made.kv_bytes)
    engine = started(chat_config(demo_chat_path, mode, kv_cache_bytes=budget))
    assert engine.ready.weights_bytes == made.weights_bytes
    assert engine.fill(made.max_concurrency) == 0
    assert engine.resident_bytes() == pytest.approx(made.total_bytes, rel=0.1)
    assert engine.fill(made.max_concurrency + 1) > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "float32"])
def test_the_demo_embedding_model_takes_what_was_planned(
    mode: Mode, demo_embedding_path: Path, started: Callable[[EngineConfig], Engine]
) -> None:
    config = EngineConfig(model=str(demo_embedding_path), kind="embedding", mode=mode, threads=THREADS)
    started(config).process.stop()  # kernels are compiled now
    made = planned(config, concurrency=16)
    engine = started(config)
    assert engine.ready.weights_bytes == made.weights_bytes
    texts = [[101, *range(1000 + number, 1254 + number), 102] for number in range(16)]
    engine.process.pool(Embed(request_id="a", inputs=texts)).result(100)
    assert engine.resident_bytes() == pytest.approx(made.total_bytes, rel=0.1)
