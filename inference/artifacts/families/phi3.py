"""Phi 3 and 4: queries, keys and values in one tensor, gate and up in another; part of a head rotated; longrope."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import NORM_NAMES, Family, num_layers, read_decoder
from inference.artifacts.rope_config import read_rope
from inference.decoder_spec import DecoderSpec, LayerSpec


def _read(reader: ConfigReader) -> DecoderSpec:
    head_dim = reader.whole("hidden_size") // reader.whole("num_attention_heads")
    window = None if reader.get("sliding_window") is None else reader.whole("sliding_window")
    return read_decoder(
        reader, family="phi3", head_dim=head_dim, rope=read_rope(reader, head_dim=head_dim, may_be_partial=True),
        rms_norm_eps=reader.positive("rms_norm_eps", 1e-5),
        max_position=reader.whole("max_position_embeddings", 4096),
        layers=() if window is None else (LayerSpec(window=window),) * num_layers(reader),
    )  # fmt: skip


FAMILY = Family(
    name="phi3", read=_read,
    layer_names={
        **NORM_NAMES, "self_attn.qkv_proj": ("q", "k", "v"), "self_attn.o_proj": ("o",),
        "mlp.gate_up_proj": ("gate", "up"), "mlp.down_proj": ("down",),
    },
)  # fmt: skip
