"""gpt-oss: sinks in attention, every second layer a window, experts with biases and a clamped SwiGLU, YaRN."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import (
    ATTENTION_NAMES,
    NORM_NAMES,
    Family,
    num_layers,
    read_decoder,
    windowed_layers,
)
from inference.artifacts.families.experts import stacked_inputs_first, with_experts
from inference.artifacts.rope_config import read_rope
from inference.decoder_spec import DecoderSpec, MoeSpec

THETA, CONTEXT, SLOPE = 150_000.0, 131_072, 1.702
YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096}  # fmt: skip


def _read(reader: ConfigReader) -> DecoderSpec:
    if reader.positive("swiglu_alpha", SLOPE) != SLOPE:
        reader.refuse(f"swiglu_alpha: only {SLOPE} can be run")
    head_dim, bias, count = reader.whole("head_dim", 64), reader.flag("attention_bias", True), num_layers(reader)
    scaled = reader
    if not reader.get("rope_parameters") and not reader.get("rope_scaling"):
        scaled = ConfigReader({**reader.values, "rope_scaling": YARN}, reader.file, reader.generation)
    inner = reader.whole("intermediate_size", 2880)
    return read_decoder(
        reader, family="gpt_oss", head_dim=head_dim, attention_bias=bias, output_bias=bias, sinks=True,
        rope=read_rope(scaled, head_dim=head_dim, theta=THETA), activation="swiglu_clamped",
        activation_limit=reader.positive("swiglu_limit", 7.0), rms_norm_eps=reader.positive("rms_norm_eps", 1e-5),
        num_kv_heads=reader.whole("num_key_value_heads", 8), intermediate_size=inner,
        max_position=reader.whole("max_position_embeddings", CONTEXT),
        layers=with_experts(windowed_layers(reader, window=reader.whole("sliding_window", 128),
                                            default=lambda index: index % 2 == 0), [True] * count),
        moe=MoeSpec(num_experts=reader.whole("num_local_experts", 128), top_k=reader.whole("num_experts_per_tok", 4),
                    intermediate_size=inner, score="softmax_of_chosen", router_bias=True, expert_bias=True),
    )  # fmt: skip


FAMILY = Family(
    name="gpt_oss", read=_read, layer_names={**NORM_NAMES, **ATTENTION_NAMES, "self_attn.sinks": ("sinks",)},
    expert_layouts=(stacked_inputs_first(),),
)  # fmt: skip
