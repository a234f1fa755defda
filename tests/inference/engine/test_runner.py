"""Loading a runner: progress, sizes, refusals; and a step that can't hurt others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from inference.artifacts.errors import ArtifactError
from inference.engine.batch import StepBatch
from inference.engine.runner import CpuRunner, load_runner
from inference.spec import EngineConfig, SpecError
from tests.inference.models.steps import Row, step

pytestmark = pytest.mark.timeout(300)  # a cold start compiles the kernels


def _save(path: Path, **changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(1)
    settings = {"vocab_size": 200, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**(settings | changes)))
    model.save_pretrained(path)
    return model


def _load(path: Path, **settings: Any) -> CpuRunner:
    return load_runner(EngineConfig(model=str(path), **settings), on_progress=lambda phase, done, total: None)


def test_progress_names_each_phase_in_order_and_ends_complete(demo_chat_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    load_runner(EngineConfig(model=str(demo_chat_path)), on_progress=lambda *report: reports.append(report))
    assert list(dict.fromkeys(phase for phase, _, _ in reports)) == ["reading", "packing", "warming"]
    packing = [(done, total) for phase, done, total in reports if phase == "packing"]
    assert packing == sorted(packing)
    assert packing[-1][0] == packing[-1][1] > 70e6
    assert reports[-1][1] == reports[-1][2]


def test_sizes_are_those_of_the_arrays(tmp_path: Path) -> None:
    _save(tmp_path, head_dim=32)
    runner = _load(tmp_path, kv_cache_bytes=1_000_000, mode="float32")
    token = 2 * 2 * 2 * 32 * 4  # keys and values, layers, KV heads, head_dim, float32
    assert runner.num_blocks == 1_000_000 // (16 * token) == runner.kv_cache_bytes // (16 * token)
    weights = sum(np.prod(p.shape) for p in LlamaForCausalLM.from_pretrained(tmp_path).parameters()) * 4
    assert weights <= runner.weights_bytes < 1.2 * weights
    assert _load(tmp_path, mode="int8").weights_bytes < 0.5 * runner.weights_bytes


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"kv_cache_bytes": 100}, "kv_cache_bytes"),
        ({"block_size": 8}, "block_size"),
        ({"max_model_len": 129}, "max_model_len"),
        ({"threads": 10_000}, "threads"),
    ],
)
def test_limits_that_cannot_be_served_are_refused_by_name(
    tmp_path: Path, settings: dict[str, Any], field: str
) -> None:
    _save(tmp_path)
    with pytest.raises(SpecError) as error:
        _load(tmp_path, **settings)
    assert error.value.field == field


def test_a_checkpoint_that_does_not_fit_its_configuration_is_refused_with_the_tensor(tmp_path: Path) -> None:
    _save(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(ArtifactError, match=r"model\.layers\.2\."):
        _load(tmp_path)


@pytest.mark.parametrize("mode", ["float32", "int8"])
def test_what_is_no_number_stays_in_its_row(tmp_path: Path, mode: str) -> None:
    model = _save(tmp_path)
    with torch.no_grad():
        model.model.embed_tokens.weight[7] = float("nan")
    model.save_pretrained(tmp_path)
    runner = _load(tmp_path, mode=mode)
    clean, bad, other = Row(table=[0]), Row(table=[1]), Row(table=[0])
    step(runner, [(clean, [1, 2, 3, 4])])
    step(runner, [(bad, [5, 7, 9]), (other, [1, 2, 3, 4])])
    assert np.isnan(bad.logits[1]).all() and np.isnan(bad.logits[2]).all()
    np.testing.assert_array_equal(other.logits, clean.logits)
    after = Row(table=[1])  # the block that held them
    step(runner, [(after, [1, 2, 3, 4])])
    np.testing.assert_array_equal(after.logits, clean.logits)


def test_an_index_out_of_range_is_refused_before_anything_runs(tmp_path: Path) -> None:
    _save(tmp_path)
    runner = _load(tmp_path)
    one, zero = np.ones(1, np.int32), np.zeros(1, np.int32)
    fine = {"token_ids": zero, "positions": zero, "slots": zero, "query_starts": np.array([0, 1], np.int32),
            "context_lens": one, "block_tables": np.zeros((1, 1), np.int32), "logit_rows": zero}  # fmt: skip
    for name, value in (("token_ids", 200), ("positions", 128), ("slots", -1), ("logit_rows", 1)):
        with pytest.raises(ValueError, match=name):
            runner.forward(StepBatch(**(fine | {name: np.array([value], np.int32)})))
