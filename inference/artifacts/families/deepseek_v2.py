"""DeepSeek V2: latent attention, small experts chosen within the best groups, experts that all tokens share."""

from typing import Any

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import MLP_NAMES, NORM_NAMES, Family, num_layers, read_decoder
from inference.artifacts.families.experts import one_by_one, stacked, with_experts
from inference.artifacts.parts import Names
from inference.artifacts.rope_config import read_rope, yarn_scale
from inference.decoder_spec import DecoderSpec, MlaSpec, MoeSpec, RopeSpec

LATENT_NAMES: Names = {
    "self_attn.q_proj": ("q",), "self_attn.q_a_proj": ("q_a",), "self_attn.q_a_layernorm": ("q_a_norm",),
    "self_attn.q_b_proj": ("q_b",), "self_attn.kv_a_proj_with_mqa": ("kv_a",),
    "self_attn.kv_a_layernorm": ("kv_a_norm",), "self_attn.kv_b_proj": ("kv_b",), "self_attn.o_proj": ("o",),
}  # fmt: skip
SHARED_NAMES: Names = {
    "mlp.shared_experts.gate_proj": ("shared.gate",), "mlp.shared_experts.up_proj": ("shared.up",),
    "mlp.shared_experts.down_proj": ("shared.down",),
    "mlp.gate.e_score_correction_bias": ("router_correction",),
}  # fmt: skip


def read_deepseek(
    reader: ConfigReader, *, family: str, moe: MoeSpec, first_dense: int, interleaved: bool, **changes: Any
) -> DecoderSpec:
    """Return the spec of a DeepSeek configuration.

    first_dense: layers before the first with experts. interleaved: see RopeSpec.
    """
    if reader.whole("moe_layer_freq", 1) != 1:
        reader.refuse("moe_layer_freq: only 1 can be run, experts in every layer after the first dense ones")
    heads, rope_dim, nope_dim = (reader.whole("num_attention_heads"), reader.whole("qk_rope_head_dim", 64),
                                 reader.whole("qk_nope_head_dim", 128))
    if reader.whole("num_key_value_heads", heads) != heads:
        reader.refuse("num_key_value_heads: latent attention has as many as num_attention_heads")
    rope = read_rope(reader, head_dim=rope_dim, interleaved=interleaved)
    return read_decoder(
        reader, family=family, head_dim=rope_dim, rope=rope, num_kv_heads=heads,
        attention_bias=reader.flag("attention_bias"), output_bias=reader.flag("attention_bias"),
        query_scale=(nope_dim + rope_dim) ** -0.5 * _score_scale(reader, rope) ** 2,
        mla=MlaSpec(kv_lora_rank=reader.whole("kv_lora_rank", 512), nope_head_dim=nope_dim, rope_head_dim=rope_dim,
                    v_head_dim=reader.whole("v_head_dim", 128), q_lora_rank=_query_rank(reader)),
        layers=with_experts((), [index >= first_dense for index in range(num_layers(reader))]), moe=moe, **changes,
    )  # fmt: skip


def _query_rank(reader: ConfigReader) -> int | None:
    """A configuration without the key has the default; null means that queries are projected directly."""
    if "q_lora_rank" in reader.values and reader.values["q_lora_rank"] is None:
        return None
    return reader.whole("q_lora_rank", 1536)


def _score_scale(reader: ConfigReader, rope: RopeSpec) -> float:
    """Return what YaRN multiplies queries and keys by, each, besides rotation: its scale with mscale_all_dim."""
    settings = reader.get("rope_parameters") or reader.get("rope_scaling") or {}
    if rope.kind != "yarn" or not settings.get("mscale_all_dim"):
        return 1.0
    return yarn_scale(rope.factor, reader.section(settings, "the rope settings").positive("mscale_all_dim"))


def _read(reader: ConfigReader) -> DecoderSpec:
    if reader.flag("norm_topk_prob"):
        reader.refuse("norm_topk_prob: DeepSeek V2 doesn't normalise the weights of the chosen experts")
    limited = reader.choice("topk_method", {"greedy": False, "group_limited_greedy": True}, "greedy")
    reader.choice("scoring_func", {"softmax": True}, "softmax")
    inner = reader.whole("moe_intermediate_size", 1407)
    moe = MoeSpec(
        num_experts=reader.whole("n_routed_experts", 64), intermediate_size=inner,
        top_k=reader.whole("num_experts_per_tok"), groups=reader.whole("n_group") if limited else 1,
        top_groups=reader.whole("topk_group") if limited else 1, scaling=reader.positive("routed_scaling_factor", 1.0),
        shared_experts_size=inner * reader.whole("n_shared_experts", 2, least=0),
    )  # fmt: skip
    return read_deepseek(reader, family="deepseek_v2", interleaved=True, mlp_bias=reader.flag("mlp_bias"), moe=moe,
                         first_dense=reader.whole("first_k_dense_replace", 0, least=0))


FAMILY = Family(
    name="deepseek_v2", read=_read, layer_names={**NORM_NAMES, **LATENT_NAMES, **MLP_NAMES, **SHARED_NAMES},
    expert_layouts=(one_by_one("mlp.experts", router="mlp.gate"), stacked()),
)  # fmt: skip
