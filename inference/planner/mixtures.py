"""Feed-forward parts of decoders: plain, gated, and mixtures of experts, of which all are resident and few compute."""

from inference.planner.config_values import ConfigValues
from inference.planner.shape import Mlp

EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
EXPERT_SIZE_KEYS = ("moe_intermediate_size", "expert_intermediate_size")


def mlp_of_layer(
    values: ConfigValues, family: str, index: int, hidden: int, *, gated: bool = True, bias: bool = False
) -> Mlp:
    """Return the MLP of the layer with this index. Raises SpecError."""
    experts = values.whole(*EXPERT_KEYS, default=0, least=0)
    if experts > 1 and _is_sparse(values, family, index):
        return _mixture(values, family, hidden, experts)
    inner = values.whole("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    return Mlp(dense=mlp_parameters(hidden, inner, gated=gated, bias=bias), inner=inner * (2 if gated else 1),
               ports=(3 if gated else 2) * (hidden + inner))


def mlp_parameters(hidden: int, inner: int, *, gated: bool = True, bias: bool = False) -> int:
    """Return the parameters of two matrices, or three with a gate."""
    up = 2 if gated else 1
    return (up + 1) * hidden * inner + (up * inner + hidden if bias else 0)


def _is_sparse(values: ConfigValues, family: str, index: int) -> bool:
    """Say whether the layer has experts; the families say it in three ways."""
    if family in ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe", "dots1"):
        first = values.whole("first_k_dense_replace", default=0, least=0)
        return index >= first and index % values.whole("moe_layer_freq", default=1) == 0
    if family == "jamba":
        return (index - values.whole("expert_layer_offset", default=1, least=0)) % values.whole(
            "expert_layer_period", default=2) == 0
    if index in values.numbers("mlp_only_layers"):
        return False
    return (index + 1) % values.whole("decoder_sparse_step", default=1) == 0


def _mixture(values: ConfigValues, family: str, hidden: int, experts: int) -> Mlp:
    inner = values.whole(*EXPERT_SIZE_KEYS, "intermediate_size")
    active = values.whole("num_experts_per_tok", "moe_top_k", "moe_k", default=min(2, experts), most=experts)
    biased = family == "gpt_oss"
    dense = 0
    if shared := _shared_inner(values, inner):
        dense = mlp_parameters(hidden, shared)
    if family in ("qwen2_moe", "qwen3_next"):
        dense += hidden  # the gate of the shared expert
    return Mlp(
        dense=dense, router=experts * (hidden + biased), experts=experts, active=active,
        expert=mlp_parameters(hidden, inner, bias=biased),
        inner=2 * (inner * active + shared), ports=3 * (hidden + shared) if shared else 0,
    )


def _shared_inner(values: ConfigValues, expert_inner: int) -> int:
    """Return the inner size of the expert that every token passes, 0 without one."""
    if size := values.whole("shared_expert_intermediate_size", "shared_intermediate_size", default=0, least=0):
        return size
    return values.whole("n_shared_experts", default=0, least=0) * expert_inner
