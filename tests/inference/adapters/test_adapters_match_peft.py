"""Requests with several LoRA adapters in one batch against PEFT's own runs of each, and what happens between them."""

import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel

from inference.client import AdapterRefusedError, EngineProcess
from inference.engine.loading import LoadedEngine, load_engine
from inference.protocol import EngineFrame, Rejected, StepOutput, Submit
from inference.spec import EngineConfig, SamplingParams, SpecError
from tests.inference.adapters.making import write_adapter
from tests.inference.families.cases import write_tiny_decoder
from tests.inference.families.replies import near_ties

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

EVERY_MODULE = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rank-stabilised, every module": {"r": 8, "lora_alpha": 3, "use_rslora": True, "target_modules": EVERY_MODULE},
    "patterns": {"target_modules": ["q_proj", "o_proj", "down_proj"], "alpha_pattern": {"q_proj": 20},
                 "rank_pattern": {"o_proj": 2, "layers.1.mlp.down_proj": 6}, "layers_to_transform": [0, 1]},
}  # fmt: skip
FUSED = {"target_modules": ["qkv_proj", "gate_up_proj"]}


def _load(folder: Path, **settings: Any) -> LoadedEngine:
    config = EngineConfig(model=str(folder), mode="float32", max_num_seqs=8, max_num_batched_tokens=32, threads=1,
                          **({"max_adapters": 4} | settings))
    return load_engine(config, on_progress=lambda phase, done, total: None)


def _replies(engine: LoadedEngine, asked: list[tuple[str, list[int]]], new_tokens: int = 48) -> list[list[int]]:
    """Run prompts with the named adapters in one batch, greedily."""
    params = SamplingParams(max_tokens=new_tokens, temperature=0, ignore_eos=True)
    replies: dict[str, list[int]] = {}
    for number, (adapter, ids) in enumerate(asked):
        replies[str(number)] = []
        engine.loop.submit(Submit(request_id=str(number), prompt_ids=ids, params=params, adapter=adapter))
    while engine.loop.has_work:
        for delta in engine.loop.step().deltas:
            assert not delta.error, delta.error
            replies[delta.request_id] += delta.token_ids
    engine.loop.scheduler.check_integrity()
    return list(replies.values())


def _prompt(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 250, count)]


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_three_adapters_and_the_base_in_one_batch_equal_four_runs(family: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = write_tiny_decoder(tmp_path / "base", model_type=family)
    engine = _load(tmp_path / "base")
    for seed, (name, settings) in enumerate(SETTINGS.items()):
        write_adapter(tmp_path / name, model, seed=seed, **settings)
        engine.loop.adapters.load(name, tmp_path / name)
    prompt = _prompt(1, 40)  # the same for all, so that only the adapter makes the difference
    asked = [("", prompt), *((name, prompt) for name in SETTINGS)]
    replies = _replies(engine, asked)
    assert len({tuple(reply) for reply in replies}) == len(asked)
    ties = near_ties(model, [prompt], replies[:1])
    for name, reply in zip(SETTINGS, replies[1:], strict=True):
        adapted = PeftModel.from_pretrained(model, str(tmp_path / name)).eval()
        ties += near_ties(adapted, [prompt], [reply])
        model = adapted.unload()
    print(f"\n{family}: {ties} of {len(asked)} replies differ, first at a near-tie")


def test_an_adapter_of_fused_projections_equals_peft(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = write_tiny_decoder(tmp_path / "base", model_type="phi3")
    write_adapter(tmp_path / "a", model, seed=3, **FUSED)
    engine, prompt = _load(tmp_path / "base"), _prompt(2, 20)
    engine.loop.adapters.load("a", tmp_path / "a")
    reply = _replies(engine, [("a", prompt)])
    assert near_ties(PeftModel.from_pretrained(model, str(tmp_path / "a")).eval(), [prompt], reply) <= 1


def test_a_name_with_new_weights_never_meets_the_former_ones_prefix(tmp_path: Path) -> None:
    model = write_tiny_decoder(tmp_path / "base", model_type="llama")
    for seed in (1, 2):
        write_adapter(tmp_path / str(seed), model, seed=seed)
    engine, prompt = _load(tmp_path / "base"), _prompt(3, 70)
    adapters = engine.loop.adapters
    digest = adapters.load("mine", tmp_path / "1")
    first = _replies(engine, [("mine", prompt)], 8)
    assert _cached(engine, "mine", prompt) == 64  # the same content shares
    assert adapters.load("mine", tmp_path / "2") != digest
    assert _cached(engine, "mine", prompt) == 0
    assert _replies(engine, [("mine", prompt)], 8) != first
    assert _cached(engine, "", prompt) == 0  # nor does the base meet an adapter's
    adapters.load("again", tmp_path / "1")  # by content, not by name
    assert _cached(engine, "again", prompt) == 64
    assert _replies(engine, [("again", prompt)], 8) == first


def _cached(engine: LoadedEngine, adapter: str, prompt: list[int]) -> int:
    """Return how many tokens of a prompt come from the prefix cache."""
    params = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)
    engine.loop.submit(Submit(request_id="probe", prompt_ids=prompt, params=params, adapter=adapter))
    while engine.loop.has_work:
        for delta in engine.loop.step().deltas:
            if delta.finish_reason:
                assert delta.timings is not None
                return delta.timings.cached_tokens
    raise AssertionError("the request didn't end")


def test_a_running_request_keeps_its_adapter_when_the_name_is_unloaded_or_loaded_anew(tmp_path: Path) -> None:
    model = write_tiny_decoder(tmp_path / "base", model_type="llama")
    for seed in (1, 2):
        write_adapter(tmp_path / str(seed), model, seed=seed)
    engine, prompt = _load(tmp_path / "base", max_adapters=2), _prompt(4, 12)
    adapters, params = engine.loop.adapters, SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    adapters.load("mine", tmp_path / "1")
    undisturbed = _replies(engine, [("mine", prompt)], 24)[0]
    engine.loop.submit(Submit(request_id="r", prompt_ids=prompt, params=params, adapter="mine"))
    reply = [token for _ in range(4) for delta in engine.loop.step().deltas for token in delta.token_ids]
    adapters.load("mine", tmp_path / "2")
    with pytest.raises(SpecError, match="2 adapters are loaded already"):  # the former one is still in use
        adapters.load("other", tmp_path / "2")
    adapters.unload("mine")
    with pytest.raises(SpecError, match="'mine' is not loaded"):
        engine.loop.submit(Submit(request_id="s", prompt_ids=prompt, params=params, adapter="mine"))
    while engine.loop.has_work:
        reply += [token for delta in engine.loop.step().deltas for token in delta.token_ids]
    assert reply == undisturbed
    adapters.load("a", tmp_path / "1")  # both places are free again
    adapters.load("b", tmp_path / "2")


def test_a_model_that_was_loaded_without_room_takes_none(tmp_path: Path) -> None:
    model = write_tiny_decoder(tmp_path / "base", model_type="gemma3_text")
    write_adapter(tmp_path / "a", model, seed=1)
    with pytest.raises(SpecError, match="loaded to take no adapters"):
        _load(tmp_path / "base", max_adapters=0).loop.adapters.load("a", tmp_path / "a")


def test_an_engine_process_loads_swaps_and_drops_adapters_on_request(tmp_path: Path) -> None:
    model = write_tiny_decoder(tmp_path / "base", model_type="gemma3_text")
    for seed in (1, 2):
        write_adapter(tmp_path / str(seed), model, seed=seed)
    frames: queue.SimpleQueue[EngineFrame] = queue.SimpleQueue()
    config = EngineConfig(model=str(tmp_path / "base"), mode="float32", max_adapters=2, threads=1)
    process = EngineProcess.start(config, socket_dir=tmp_path, on_frame=frames.put, on_lost=lambda reason: None)
    try:
        process.wait_ready(timeout=300)
        digest = process.load_adapter("mine", tmp_path / "1")
        assert process.load_adapter("mine", tmp_path / "2") != digest
        with pytest.raises(AdapterRefusedError, match="adapter_config.json"):
            process.load_adapter("other", tmp_path / "base")
        params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
        process.submit(Submit(request_id="r", prompt_ids=[5, 6, 7], params=params, adapter="mine"))
        reply: list[int] = []
        while len(reply) < 3:
            output = frames.get(timeout=60)
            assert isinstance(output, StepOutput)
            reply += [token for delta in output.deltas for token in delta.token_ids]
        process.unload_adapter("mine")
        process.submit(Submit(request_id="s", prompt_ids=[5, 6, 7], params=params, adapter="mine"))
        rejected = frames.get(timeout=60)
        assert isinstance(rejected, Rejected) and rejected.field == "adapter"
    finally:
        process.stop()
