"""Qwen 1.5 and 2 MoE: qwen2 with many small experts and one that all tokens share, behind a gate of its own."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import LAYER_NAMES, Family, num_layers, read_decoder, windowed_layers
from inference.artifacts.families.experts import one_by_one, sparse_layers, stacked, with_experts
from inference.artifacts.families.qwen2 import QWEN_CONTEXT
from inference.artifacts.parts import Names
from inference.decoder_spec import DecoderSpec, LayerSpec, MoeSpec

QWEN_EXPERTS = (one_by_one("mlp.experts", router="mlp.gate"), stacked())
_SHARED_NAMES: Names = {
    "mlp.shared_expert.gate_proj": ("shared.gate",), "mlp.shared_expert.up_proj": ("shared.up",),
    "mlp.shared_expert.down_proj": ("shared.down",), "mlp.shared_expert_gate": ("shared_gate",),
}  # fmt: skip


def _windows(reader: ConfigReader) -> tuple[LayerSpec, ...]:
    """Every second of the layers before max_window_layers sees a window, where windows are on."""
    if not reader.flag("use_sliding_window"):
        return ()
    last = reader.whole("max_window_layers", 28, least=0)
    return windowed_layers(reader, window=reader.whole("sliding_window", 4096),
                           default=lambda index: index % 2 == 0 and index < last)


def _read(reader: ConfigReader) -> DecoderSpec:
    return read_decoder(
        reader, family="qwen2_moe", attention_bias=reader.flag("qkv_bias", True),
        max_position=reader.whole("max_position_embeddings", QWEN_CONTEXT),
        layers=with_experts(_windows(reader), sparse_layers(reader, num_layers(reader))),
        moe=MoeSpec(num_experts=reader.whole("num_experts", 60), top_k=reader.whole("num_experts_per_tok", 4),
                    intermediate_size=reader.whole("moe_intermediate_size", 1408),
                    norm_top_k=reader.flag("norm_topk_prob"), shared_gate=True,
                    shared_experts_size=reader.whole("shared_expert_intermediate_size", 5632)),
    )  # fmt: skip


FAMILY = Family(name="qwen2_moe", read=_read, layer_names={**LAYER_NAMES, **_SHARED_NAMES}, expert_layouts=QWEN_EXPERTS)
