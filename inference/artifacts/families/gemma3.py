"""Gemma 3, the text model: queries and keys normed, five windows to one full layer, a rope of its own for each."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import ACTIVATIONS, FULL, WINDOWED, Family, read_decoder, windowed_layers
from inference.artifacts.families.gemma2 import GEMMA_LAYER_NAMES
from inference.artifacts.rope_config import read_rope
from inference.decoder_spec import DecoderSpec

GLOBAL_THETA, LOCAL_THETA = 1_000_000.0, 10_000.0


def _read(reader: ConfigReader) -> DecoderSpec:
    if reader.get("use_bidirectional_attention"):
        reader.refuse("use_bidirectional_attention: a decoder sees only what came before")
    bias, head_dim = reader.flag("attention_bias"), reader.whole("head_dim", 256)
    pattern = reader.whole("sliding_window_pattern", 6)
    windowed = ConfigReader(
        {key: value for key, value in reader.values.items() if key != "rope_scaling"}, reader.file, reader.generation
    )  # an old file's scaling is for the full layers only
    return read_decoder(
        reader, family="gemma3_text", norm="rms_plus_one", norm_places="both", qk_norm="head", head_dim=head_dim,
        attention_bias=bias, output_bias=bias, num_kv_heads=reader.whole("num_key_value_heads", 4),
        max_position=reader.whole("max_position_embeddings", 131_072),
        activation=reader.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh"),
        embedding_multiplier=reader.whole("hidden_size") ** 0.5,
        query_scale=reader.positive("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=reader.optional_positive("attn_logit_softcapping"),
        logit_softcap=reader.optional_positive("final_logit_softcapping"),
        tie_word_embeddings=reader.flag("tie_word_embeddings", True),
        rope=read_rope(reader, head_dim=head_dim, section=FULL, theta=GLOBAL_THETA),
        other_ropes=(read_rope(windowed, head_dim=head_dim, section=WINDOWED, theta=LOCAL_THETA,
                               theta_key="rope_local_base_freq"),),
        layers=windowed_layers(reader, window=reader.whole("sliding_window", 4096), local_rope=1,
                               default=lambda index: (index + 1) % pattern != 0),
    )  # fmt: skip


FAMILY = Family(name="gemma3_text", read=_read, layer_names=GEMMA_LAYER_NAMES)
