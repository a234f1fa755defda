"""Gemma 2: norms around both blocks, soft-caps, every second layer a window, embeddings scaled by sqrt(hidden)."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import (
    ACTIVATIONS,
    ATTENTION_NAMES,
    MLP_NAMES,
    Family,
    read_decoder,
    windowed_layers,
)
from inference.artifacts.parts import Names
from inference.decoder_spec import DecoderSpec

GEMMA_LAYER_NAMES: Names = {
    **ATTENTION_NAMES, **MLP_NAMES,
    "input_layernorm": ("attention_norm",), "post_attention_layernorm": ("attention_post_norm",),
    "pre_feedforward_layernorm": ("mlp_norm",), "post_feedforward_layernorm": ("mlp_post_norm",),
}  # fmt: skip


def _read(reader: ConfigReader) -> DecoderSpec:
    if reader.get("use_bidirectional_attention"):
        reader.refuse("use_bidirectional_attention: a decoder sees only what came before")
    bias = reader.flag("attention_bias")
    return read_decoder(
        reader, family="gemma2", norm="rms_plus_one", norm_places="both", attention_bias=bias, output_bias=bias,
        head_dim=reader.whole("head_dim", 256), num_kv_heads=reader.whole("num_key_value_heads", 4),
        max_position=reader.whole("max_position_embeddings", 8192),
        activation=reader.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh"),
        embedding_multiplier=reader.whole("hidden_size") ** 0.5,
        query_scale=reader.positive("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_cap(reader, "attn_logit_softcapping", 50.0),
        logit_softcap=_cap(reader, "final_logit_softcapping", 30.0),
        tie_word_embeddings=reader.flag("tie_word_embeddings", True),
        layers=windowed_layers(reader, window=reader.whole("sliding_window", 4096),
                               default=lambda index: index % 2 == 0),
    )  # fmt: skip


def _cap(reader: ConfigReader, key: str, default: float) -> float | None:
    """Return a soft-cap; null in the file turns it off."""
    return reader.optional_positive(key) if key in reader.values else default


FAMILY = Family(name="gemma2", read=_read, layer_names=GEMMA_LAYER_NAMES)
