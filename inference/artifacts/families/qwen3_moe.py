"""Qwen 3 MoE: qwen3 with 128 small experts, of which the router's eight best compute a token."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import Family, num_layers, read_decoder
from inference.artifacts.families.experts import sparse_layers, with_experts
from inference.artifacts.families.qwen2 import QWEN_CONTEXT
from inference.artifacts.families.qwen2_moe import QWEN_EXPERTS
from inference.decoder_spec import DecoderSpec, LayerSpec, MoeSpec


def _read(reader: ConfigReader) -> DecoderSpec:
    bias, count = reader.flag("attention_bias"), num_layers(reader)
    window = reader.whole("sliding_window", 4096) if reader.flag("use_sliding_window") else None
    return read_decoder(
        reader, family="qwen3_moe", qk_norm="head", attention_bias=bias, output_bias=bias,
        num_kv_heads=reader.whole("num_key_value_heads", 4),
        max_position=reader.whole("max_position_embeddings", QWEN_CONTEXT),
        layers=with_experts((LayerSpec(window=window),) * count, sparse_layers(reader, count)),
        moe=MoeSpec(num_experts=_num_experts(reader), top_k=reader.whole("num_experts_per_tok", 8),
                    intermediate_size=reader.whole("moe_intermediate_size", 768),
                    norm_top_k=reader.flag("norm_topk_prob")),
    )  # fmt: skip


def _num_experts(reader: ConfigReader) -> int:
    """Published files say num_experts, transformers 5 num_local_experts."""
    return reader.whole("num_experts", reader.whole("num_local_experts", 128))


FAMILY = Family(name="qwen3_moe", read=_read, expert_layouts=QWEN_EXPERTS)
