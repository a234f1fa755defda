"""Latent attention: what it caches, and that expanding and absorbing both give the reference's result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inference.artifacts.config import decoder_spec_from_config
from inference.decoder_spec import MlaSpec
from inference.engine.runner import load_runner
from inference.engine.torch_runner import make_caches
from inference.layers import mla
from inference.layers.mla import DenseUpProjection, LatentAttention, PackedUpProjection, expands
from inference.spec import MODES, EngineConfig, Mode
from tests.inference.families.cases import CASES, write_tiny_decoder
from tests.inference.models.steps import Row, random_tokens, run_alone, step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

# The shape that deepseek-ai/DeepSeek-V3 publishes in its config.json.
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
    "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rms_norm_eps": 1e-6,
    "rope_theta": 10000, "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu",
    "num_nextn_predict_layers": 1, "bos_token_id": 0, "eos_token_id": 1,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
}  # fmt: skip


def test_a_token_of_deepseek_v3_takes_70272_bytes_of_the_pool_in_bf16() -> None:
    spec = decoder_spec_from_config(DEEPSEEK_V3, {})
    assert spec.kv_bytes_per_token(2) == 576 * 61 * 2 == 70_272
    caches = make_caches(spec, num_blocks=3, block_size=16, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert sum(part.nbytes for cache in caches for part in cache) == 70_272 * 3 * 16


def test_long_chunks_expand_and_decode_absorbs() -> None:
    v3 = MlaSpec(kv_lora_rank=512, nope_head_dim=128, rope_head_dim=64, v_head_dim=128)
    assert [rows for rows in range(1, 1000) if expands(rows, v3)][0] == 171
    assert not expands(1, v3)


def test_both_projections_agree_in_every_direction() -> None:
    shape = MlaSpec(kv_lora_rank=40, nope_head_dim=12, rope_head_dim=8, v_head_dim=20)
    weight = torch.randn(3, 32, 40, generator=torch.Generator().manual_seed(1))
    dense, packed = DenseUpProjection(weight, shape), PackedUpProjection(weight.numpy(), shape)
    latent, query, attended = torch.randn(7, 40), torch.randn(7, 3, 12), torch.randn(7, 3, 40)
    torch.testing.assert_close(packed.expand(latent), dense.expand(latent), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(packed.absorb(query), dense.absorb(query), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(packed.values(attended), dense.values(attended), rtol=1e-4, atol=1e-5)


TOKENS = random_tokens(3, 70, low=3, high=250)


@pytest.fixture(params=["expanded", "absorbed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let all sequences go one way, and see to it that none went the other."""
    monkeypatch.setattr(mla, "expands", lambda rows, shape: request.param == "expanded")
    other = "_absorbed" if request.param == "expanded" else "_expanded"
    monkeypatch.setattr(LatentAttention, other, lambda *arguments: pytest.fail("the other way was taken"))
    yield request.param


def _load(folder: Path, mode: Mode = "float32") -> Any:
    config = EngineConfig(model=str(folder), mode=mode, max_num_batched_tokens=128)
    return load_runner(config, on_progress=lambda phase, done, total: None)


def _write(folder: Path, family: str) -> Any:
    return write_tiny_decoder(folder, **next(case for case in CASES.values() if case["model_type"] == family))


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_each_way_equals_the_reference_in_any_chunks(family: str, way: str, tmp_path: Path) -> None:
    model = _write(tmp_path, family)
    with torch.no_grad():
        wanted = model(torch.tensor([TOKENS])).logits[0].numpy()
    runner = _load(tmp_path)
    for chunk in (1, 33, 70):
        ours = np.array(run_alone(runner, TOKENS, chunk=chunk, table=[3, 1, 4, 0, 5]).logits)
        assert np.abs(ours - wanted).max() < 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_a_row_has_the_same_bits_in_any_company_that_goes_the_same_way(mode: Mode, way: str, tmp_path: Path) -> None:
    _write(tmp_path, "deepseek_v3")
    runner = _load(tmp_path, mode)
    alone = np.array(run_alone(runner, TOKENS, chunk=7, table=[3, 1, 4, 0, 5]).logits)
    ours, other = Row(table=[20, 22, 21, 24, 23]), Row(table=[30, 31, 32, 33, 34])
    while ours.done < len(TOKENS):
        step(runner, [(other, TOKENS[other.done : other.done + 5]), (ours, TOKENS[ours.done : ours.done + 9])])
    np.testing.assert_array_equal(np.array(ours.logits), alone)


def test_sequences_of_one_step_each_go_their_own_way(tmp_path: Path) -> None:
    model = _write(tmp_path, "deepseek_v3")
    runner = _load(tmp_path)
    with torch.no_grad():
        wanted = model(torch.tensor([TOKENS])).logits[0].numpy()
    rows = [Row(table=[3, 1, 4, 0, 5]), Row(table=[20, 22, 21, 24, 23]), Row(table=[30, 31, 32, 33, 34])]
    sizes = (1, 40, 3)  # the second expands
    for _ in range(2):
        work = [(row, TOKENS[row.done : row.done + size][:30 if row.done else None])
                for row, size in zip(rows, sizes, strict=True)]
        step(runner, work)
    for row in rows:
        assert np.abs(np.array(row.logits) - wanted[: row.done]).max() < 1e-3
