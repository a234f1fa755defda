"""The CUDA path. Its parts that are plain torch run here on the CPU; the whole runs where there is a CUDA device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inference.artifacts.checkpoint import Checkpoint
from inference.artifacts.source import ModelSource
from inference.engine.batch import StepBatch
from inference.engine.cuda_graphs import StaticStep
from inference.engine.loading import load_engine
from inference.engine.runner import load_runner
from inference.engine.torch_runner import CPU, make_caches, single_threaded, step_tensors
from inference.layers.rope_tables import RopeTables
from inference.layers.weights import WeightLoader
from inference.models.torch_decoder import TorchDecoder
from inference.protocol import Submit
from inference.spec import EngineConfig, SamplingParams, SpecError
from tests.inference.families.cases import CASES, write_tiny_decoder
from tests.inference.families.replies import engine_replies, near_ties, prompts
from tests.inference.models.steps import random_tokens, run_alone


def _decodes(contexts: list[int]) -> StepBatch:
    """Return a step of decodes, each sequence in three blocks of its own."""
    count = len(contexts)
    tables = np.arange(3 * count, dtype=np.int32).reshape(count, 3)
    positions = np.array(contexts, np.int32) - 1
    return StepBatch(
        token_ids=np.arange(3, 3 + count, dtype=np.int32), positions=positions,
        slots=tables[np.arange(count), positions // 16] * 16 + positions % 16,
        query_starts=np.arange(count + 1, dtype=np.int32), context_lens=np.array(contexts, np.int32),
        block_tables=tables, logit_rows=np.arange(count, dtype=np.int32),
    )  # fmt: skip


@pytest.mark.slow
def test_a_step_in_a_graphs_buffers_gives_the_same_logits_and_writes_nobodys_block(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **CASES["gemma3 past its window"])
    source = ModelSource.open(tmp_path)
    spec = source.decoder_spec()
    load = WeightLoader(Checkpoint(source, spec), device=CPU, dtype=torch.float32, mode="float32",
                        on_bytes=lambda done, total: None)
    decoder, tables = TorchDecoder(spec, load), RopeTables(spec, 256, CPU)
    spare = 20
    caches = make_caches(spec, num_blocks=spare + 1, block_size=16, device=CPU, dtype=torch.float32)
    for cache in caches:
        cache.keys.normal_(), cache.values.normal_()
    with torch.inference_mode(), single_threaded(1):
        step = step_tensors(_decodes([7, 40, 23]), CPU, tables)
        wanted = decoder(step, caches, torch.arange(3))
        before = [cache.keys[9:spare].clone() for cache in caches]
        static = StaticStep(step, size=8, width=16, spare=spare, block_size=16, max_context=256)
        for _ in range(2):  # filled again, after another step
            static.load(step)
            got = decoder(static.step, caches, torch.arange(8))[:3]
            torch.testing.assert_close(got, wanted)
            static.load(step_tensors(_decodes([1, 2, 3, 4, 5]), CPU, tables))
        assert all(torch.equal(cache.keys[9:spare], kept) for cache, kept in zip(caches, before, strict=True))


def _logits(folder: Path, dtype: torch.dtype, *, packs: bool) -> torch.Tensor:
    """Return the logits of two texts, in a step of both and one decode each, of a decoder made in that way."""
    source = ModelSource.open(folder)
    spec = source.decoder_spec()
    load = WeightLoader(Checkpoint(source, spec), device=CPU, dtype=dtype, mode="float32",
                        on_bytes=lambda done, total: None)
    load.packs = packs
    decoder, tables = TorchDecoder(spec, load), RopeTables(spec, 256, CPU)
    caches = make_caches(spec, num_blocks=8, block_size=16, device=CPU, dtype=dtype)
    tokens, lengths = np.array(random_tokens(2, 58, low=3, high=250), np.int32), np.array([40, 18])
    table, logits = np.arange(6, dtype=np.int32).reshape(2, 3), []
    for first, count in (((0, 0), (39, 17)), ((39, 17), (1, 1))):
        sequence = np.repeat([0, 1], count)
        positions = np.concatenate([np.arange(a, a + n) for a, n in zip(first, count, strict=True)])
        step = step_tensors(StepBatch(
            token_ids=tokens[np.array([0, 40])[sequence] + positions], positions=positions.astype(np.int32),
            slots=(table[sequence, positions // 16] * 16 + positions % 16).astype(np.int32),
            query_starts=np.array([0, count[0], sum(count)], np.int32),
            context_lens=np.add(first, count, dtype=np.int32), block_tables=table, total_lens=lengths.astype(np.int32),
            logit_rows=np.arange(sum(count), dtype=np.int32),
        ), CPU, tables)  # fmt: skip
        logits.append(decoder(step, caches, torch.arange(sum(count))))
    return torch.cat(logits)


DENSE = ["llama with biases", "gemma2 past its window", "qwen3", "olmo2", "granite",
         "phi3 with longrope, across and past the original context", "mixtral past its window",
         "gpt_oss with YaRN past the original context, past its window",
         "deepseek_v3 with YaRN past the original context"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DENSE)
def test_weights_as_a_device_has_them_give_the_logits_of_packed_ones(name: str, tmp_path: Path) -> None:
    """Plain tensors, plain products and the slow twin of attention: what CUDA runs in place of the CPU's kernels."""
    write_tiny_decoder(tmp_path, **CASES[name])
    with torch.inference_mode(), single_threaded(1):
        packed = _logits(tmp_path, torch.float32, packs=True)
        dense = _logits(tmp_path, torch.float32, packs=False)
        rounded = _logits(tmp_path, torch.bfloat16, packs=False)
    assert (dense - packed).abs().max() < 1e-3 * packed.abs().max()
    if "mixtral" not in name and "gpt_oss" not in name and "deepseek" not in name:  # rounding may choose other experts
        assert (rounded - packed).abs().mean() < 0.03 * packed.abs().max()
    assert rounded.dtype == torch.float32 and torch.isfinite(rounded).all()


@pytest.mark.slow
def test_replies_are_the_same_whether_the_runner_draws_or_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_decoder(tmp_path, **CASES["gemma3 past its window"])
    settings = [{"temperature": 0.0}, {"temperature": 0.9, "seed": 3}, {"top_k": 20, "top_p": 0.8, "seed": 4},
                {"seed": 5, "repetition_penalty": 1.3}, {"seed": 6, "logprobs": 2}]  # the last two are the host's
    replies = []
    for draws in (False, True):
        config = EngineConfig(model=str(tmp_path), mode="float32", max_num_batched_tokens=64, threads=1,
                              speculation=False)
        engine = load_engine(config, on_progress=lambda phase, done, total: None)
        runner: Any = engine.loop._runner
        steps: list[int] = []
        monkeypatch.setattr(runner, "draw", lambda *args, draw=runner.draw, steps=steps, **more: (
            steps.append(1), draw(*args, **more))[1])
        runner.drawer = runner if draws else None
        for group in ([0, 1, 2], [0, 1, 2, 3, 4]):
            for number in group:
                params = SamplingParams(max_tokens=12, ignore_eos=True, **settings[number])  # type: ignore[arg-type]
                engine.loop.submit(Submit(request_id=str(number), prompt_ids=[5, 6, number + 9], params=params))
            reply: dict[str, list[int]] = {str(number): [] for number in group}
            while engine.loop.has_work:
                for delta in engine.loop.step().deltas:
                    assert not delta.error
                    reply[delta.request_id] += delta.token_ids
            replies.append(reply)
        assert len(steps) == (12 if draws else 0)  # each step of the first group, none in which the others take part
    assert replies[:2] == replies[2:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_machine_without_cuda_says_so(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, model_type="llama")
    with pytest.raises(SpecError, match="no CUDA device"):
        load_runner(EngineConfig(model=str(tmp_path), device="cuda"), on_progress=lambda phase, done, total: None)


def _load(folder: Path, **settings: Any) -> Any:
    config = EngineConfig(model=str(folder), device="cuda", max_num_seqs=8, max_num_batched_tokens=64, **settings)
    return load_engine(config, on_progress=lambda phase, done, total: None)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["llama with biases", "mistral past its window", "gemma2 past its window", "olmo2"])
def test_greedy_replies_on_cuda_in_float32_equal_generate(name: str, tmp_path: Path) -> None:
    model = write_tiny_decoder(tmp_path, **CASES[name])
    asked = prompts(model.config.vocab_size)
    replies, _ = engine_replies(_load(tmp_path, mode="float32"), asked)
    assert near_ties(model, asked, replies) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mistral past its window", "qwen3"])
def test_logits_on_cuda_in_bfloat16_are_near_those_on_the_cpu(name: str, tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **(CASES[name] | {"head_dim": 32}))
    tokens = random_tokens(1, 60, low=3, high=250)
    rows = {}
    for device in ("cpu", "cuda"):
        config = EngineConfig(model=str(tmp_path), device=device, mode="float32" if device == "cpu" else "int8")  # type: ignore[arg-type]
        runner = load_runner(config, on_progress=lambda phase, done, total: None)
        rows[device] = np.array(run_alone(runner, tokens, chunk=16, table=[0, 1, 2, 3]).logits)
    assert np.abs(rows["cpu"] - rows["cuda"]).max() < 0.05 * np.abs(rows["cpu"]).max()


@pytest.mark.gpu
def test_a_request_gives_the_same_tokens_on_cuda_alone_and_among_others(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, model_type="llama", head_dim=32)
    engine, ids = _load(tmp_path), prompts(250)
    params = SamplingParams(max_tokens=32, temperature=1.0, seed=5, ignore_eos=True)

    def run(numbers: list[int]) -> list[int]:
        for number in numbers:
            engine.loop.submit(Submit(request_id=str(number), prompt_ids=ids[number], params=params))
        reply: list[int] = []
        while engine.loop.has_work:
            reply += [token for delta in engine.loop.step().deltas if delta.request_id == "2"
                      for token in delta.token_ids]
        return reply

    assert run([2]) == run([0, 1, 2, 3])
