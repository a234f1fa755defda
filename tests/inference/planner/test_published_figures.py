"""Plans beside the figures that the models' authors published."""

from pathlib import Path
from typing import Any

import pytest

from inference.planner import DEVICES, AdapterSlots, Device, Plan, plan, read_model
from tests.inference.planner import published

H200 = DEVICES["h200"]
SMALL = Device(name="small", kind="cuda", memory_bytes=24 * 10**9)


def planned(config: dict[str, Any], **wishes: Any) -> Plan:
    return plan(config, **{"device": H200, "context": 8192, **wishes})


@pytest.mark.parametrize(("config", "total", "active"), [
    (published.LLAMA_70B, 70.6e9, 70.6e9),
    (published.QWEN25_72B, 72.7e9, 72.7e9),
    (published.DEEPSEEK_V3, 671e9, 37e9),
    (published.MIXTRAL_8X7B, 46.7e9, 12.9e9),
    (published.QWEN3_30B_A3B, 30.5e9, 3.3e9),
    (published.GPT_OSS_20B, 20.91e9, None),  # the paper's active count leaves embeddings out
    (published.QWEN3_NEXT_80B, 80e9, None),
], ids=lambda value: value["model_type"] if isinstance(value, dict) else "")
def test_parameters_are_the_published_ones(config: dict[str, Any], total: float, active: float | None) -> None:
    made = planned(config)
    assert made.parameters_total == pytest.approx(total, rel=0.005)
    if active is not None:
        assert made.parameters_active == pytest.approx(active, rel=0.02)


def test_active_parameters_of_gpt_oss_without_its_embeddings() -> None:
    made = planned(published.GPT_OSS_20B)
    # 3.61B counts the output matrix and not the input embedding (arXiv 2508.10925, table 1).
    assert made.parameters_active - 201_088 * 2880 == pytest.approx(3.61e9, rel=0.02)


@pytest.mark.parametrize(("config", "kv_bytes", "kind"), [
    (published.LLAMA_70B, 327_680, "gqa"),
    (published.LLAMA_70B | {"num_key_value_heads": 64}, 8 * 327_680, "mha"),
    (published.LLAMA_70B | {"num_key_value_heads": 1}, 327_680 // 8, "mqa"),
    (published.DEEPSEEK_V3, 70_272, "mla"),
    (published.QWEN25_72B, 327_680, "gqa"),  # arXiv 2505.09343, table 1, too
    (published.QWEN3_NEXT_80B, 12 * 2 * 2 * 256 * 2, "hybrid"),
])
def test_kv_bytes_of_a_token_are_exact(config: dict[str, Any], kv_bytes: int, kind: str) -> None:
    made = planned(config)
    assert (made.kv_bytes_per_token, made.attention) == (kv_bytes, kind)


def test_the_kv_cache_of_100_000_tokens() -> None:
    few, many = (planned(published.LLAMA_70B | {"num_key_value_heads": heads}, context=100_000) for heads in (8, 64))
    assert few.kv_bytes == 32_768_000_000
    assert many.kv_bytes == 8 * few.kv_bytes


def test_weights_of_qwen_in_bf16() -> None:
    assert planned(published.QWEN25_72B).weights_bytes == pytest.approx(145.4e9, rel=0.001)


@pytest.mark.parametrize("config", [published.LLAMA_70B, published.DEEPSEEK_V3, published.MIXTRAL_8X7B])
def test_flop_per_token_are_twice_the_active_parameters_without_the_input_embedding(config: dict[str, Any]) -> None:
    made = planned(config)
    embedding = config["vocab_size"] * config["hidden_size"]
    assert made.prefill_flops_per_token == made.decode_flops_per_token == 2 * (made.parameters_active - embedding)


def test_sliding_windows_cap_the_cache() -> None:
    """Half of gpt-oss's 24 layers keep 128 tokens only; a token has 2 × 8 × 64 numbers of 2 bytes in each layer."""
    layer = 2 * 8 * 64 * 2
    made = planned(published.GPT_OSS_20B, context=100_000, concurrency=3)
    assert made.kv_bytes_per_token == 24 * layer
    assert made.kv_bytes == 3 * 12 * layer * (100_000 + 128)


def test_linear_layers_keep_a_state_of_one_size() -> None:
    """A head's state is a 128 × 128 matrix in float32, and the convolution keeps 4 steps of its 8,192 channels."""
    state = 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
    short, long = (planned(published.QWEN3_NEXT_80B, context=tokens).kv_bytes for tokens in (1, 10_001))
    assert short == state + 12 * 2 * 2 * 256 * 2
    assert long - short == 10_000 * 12 * 2 * 2 * 256 * 2


@pytest.mark.parametrize(("tp", "kv_heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (64, 1)])
def test_ranks_share_kv_heads_until_each_has_one(tp: int, kv_heads: int) -> None:
    made = planned(published.LLAMA_70B, tp=tp)
    assert made.kv_bytes_per_token == 80 * 2 * kv_heads * 128 * 2
    assert made.weights_bytes >= 141e9 / tp


def test_every_rank_keeps_the_whole_latent() -> None:
    one, eight = (planned(published.DEEPSEEK_V3, tp=tp) for tp in (1, 8))
    assert one.kv_bytes_per_token == eight.kv_bytes_per_token == 70_272
    assert eight.weights_bytes == pytest.approx(one.weights_bytes / 8, rel=0.02)


def test_all_experts_are_resident_and_only_the_visited_are_read_for_one_token() -> None:
    made = planned(published.MIXTRAL_8X7B)
    assert made.weights_bytes == pytest.approx(2 * 46.7e9, rel=0.005)
    cache = made.kv_bytes / H200.bandwidth
    assert made.tpot_floor_s is not None
    assert made.tpot_floor_s - cache == pytest.approx(2 * (12.9e9 - 32_000 * 4096) / H200.bandwidth, rel=0.01)


def test_fp8_weights_of_deepseek() -> None:
    """The published checkpoint quantises the layers' matrices in blocks: about 671 GB without the extra MTP layer."""
    fp8 = published.DEEPSEEK_V3 | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    made = planned(fp8)
    assert made.dtype == "fp8"
    assert made.weights_bytes == pytest.approx(671e9, rel=0.01)


def test_adapters_take_their_slots() -> None:
    """Rank 16 over q, k, v, o, gate, up and down of 80 layers: arXiv 2106.09685 counts rank × (in + out) a matrix."""
    ports = 80 * (2 * (8192 + 8192) + 2 * (8192 + 1024) + 3 * (8192 + 28_672))
    made = planned(published.LLAMA_70B, adapters=AdapterSlots(slots=4, rank=16))
    assert made.adapter_bytes == 4 * 16 * ports * 2
    assert made.total_bytes == planned(published.LLAMA_70B).total_bytes + made.adapter_bytes


def test_smollm2_counted_from_its_file(demo_chat_path: Path) -> None:
    """134.5M parameters: arXiv 2502.02737's 135M, tied embeddings once; Q4_1 is 20 bytes for 32 weights."""
    model = read_model(demo_chat_path)
    made = plan(model.config, device=SMALL, stored=model.stored)
    assert made.parameters_total == made.parameters_active == 134_515_008
    assert made.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2
    assert (made.attention, made.context) == ("gqa", 8192)
    assert made.decode_flops_per_token == 2 * 134_515_008  # the tied embedding is the output matrix
    assert 0.98 < made.weights_bytes / demo_chat_path.stat().st_size < 1


def test_minilm_counted_from_its_files(demo_embedding_path: Path) -> None:
    """22.7M parameters (its model card); an encoder keeps nothing of a token between requests."""
    model = read_model(demo_embedding_path)
    made = plan(model.config, device=SMALL, stored=model.stored)
    assert made.parameters_total == made.parameters_active == 22_713_216
    assert (made.kv_bytes_per_token, made.kv_bytes, made.attention) == (0, 0, "mha")
    assert made.decode_flops_per_token == 2 * (22_713_216 - (30_522 + 512 + 2) * 384)
    assert made.tpot_floor_s is None
