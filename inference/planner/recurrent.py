"""Shapes of decoders with linear (recurrent) layers, which keep a state of one size for any length of text.

Sources: Mamba (arXiv 2312.00752), Mamba-2 (arXiv 2405.21060), Gated DeltaNet (arXiv 2412.06464), and transformers'
modeling files, with whose parameter counts the tests compare.
"""

from dataclasses import replace

from inference.planner.config_values import MOST_LAYERS, ConfigValues
from inference.planner.decoders import Traits, attention, head_counts, precision, quantisation
from inference.planner.mixtures import mlp_of_layer, mlp_parameters
from inference.planner.shape import Layer, Mixer, Mlp, ModelShape

_ATTENTION = Traits(qkv_bias=False, out_bias=False, mlp_bias=False)
_QWEN3_NEXT = replace(_ATTENTION, qk_norm="head", gated_attention=True)

FAMILIES = ("qwen3_next", "mamba", "falcon_mamba", "mamba2", "jamba", "bamba", "falcon_h1", "granitemoehybrid")
TIED = ("mamba", "falcon_mamba", "granitemoehybrid")


def recurrent_shape(values: ConfigValues, family: str) -> ModelShape:
    """Return the shape of a decoder some or all of whose layers are recurrent. Raises SpecError."""
    hidden, vocabulary = values.whole("hidden_size", "d_model"), values.whole("vocab_size")
    count = values.whole("num_hidden_layers", "n_layer", most=MOST_LAYERS)
    attends = family not in ("mamba", "falcon_mamba", "mamba2")
    heads, kv_heads, head_dim = head_counts(values, family, hidden) if attends else (1, 1, 1)
    tied, embedding = values.flag("tie_word_embeddings", default=family in TIED), vocabulary * hidden

    def attend() -> Mixer:
        traits = _QWEN3_NEXT if family == "qwen3_next" else _ATTENTION
        return attention(values, traits, hidden, heads, kv_heads, head_dim, None)

    layers = []
    for index in range(count):
        attending, recurring = _kinds(values, family, index)
        mixers = ([attend()] if attending else []) + ([_recurrence(values, family, hidden)] if recurring else [])
        mlp = _mlp(values, family, index, hidden) if attends else Mlp(inner=2 * hidden)
        layers.append(Layer(mixers=tuple(mixers), mlp=mlp, norms=hidden * (2 if attends else 1)))
    return ModelShape(
        family=family, kind="decoder", vocabulary=vocabulary, hidden=hidden, heads=heads, kv_heads=kv_heads,
        head_dim=head_dim, layers=tuple(layers), embedding=embedding, head=0 if tied else embedding, tied=tied,
        context=values.whole("max_position_embeddings", default=0, least=0), precision=precision(values),
        quantisation=quantisation(values), other=hidden,
    )


def _kinds(values: ConfigValues, family: str, index: int) -> tuple[bool, bool]:
    """Say whether the layer attends, and whether it has a recurrence."""
    if family in ("mamba", "falcon_mamba", "mamba2"):
        return False, True
    if family == "falcon_h1":
        return True, True
    if family == "jamba":
        period, offset = values.whole("attn_layer_period", default=8), values.whole("attn_layer_offset", default=4,
                                                                                   least=0)
        attends = index % period == offset
    elif family == "bamba":
        attends = index in values.numbers("attn_layer_indices")
    elif kinds := values.texts("layer_types", "layers_block_type", length=index + 1):
        attends = kinds[index] in ("full_attention", "attention")
    else:
        attends = family == "qwen3_next" and (index + 1) % values.whole("full_attention_interval", default=4) == 0
    return attends, not attends


def _mlp(values: ConfigValues, family: str, index: int, hidden: int) -> Mlp:
    if family == "granitemoehybrid":  # a mixture and, beside it, an MLP that every token passes
        shared = values.whole("shared_intermediate_size", default=1024)
        if values.whole("num_local_experts", default=0, least=0) == 0:
            return Mlp(dense=mlp_parameters(hidden, shared), inner=2 * shared)
    return mlp_of_layer(values, family, index, hidden, bias=values.flag("mlp_bias"))


def _recurrence(values: ConfigValues, family: str, hidden: int) -> Mixer:
    if family == "qwen3_next":
        return _gated_delta(values, hidden)
    if family in ("mamba", "falcon_mamba", "jamba"):
        return _mamba(values, family, hidden)
    return _mamba2(values, hidden)


def _gated_delta(values: ConfigValues, hidden: int) -> Mixer:
    """Gated DeltaNet as Qwen3-Next has it: a matrix [key, value] a value head, and a short convolution."""
    key_heads, value_heads = values.whole("linear_num_key_heads"), values.whole("linear_num_value_heads")
    key_dim, value_dim = values.whole("linear_key_head_dim"), values.whole("linear_value_head_dim")
    keys, inner = key_heads * key_dim, value_heads * value_dim
    channels, kernel = 2 * keys + inner, values.whole("linear_conv_kernel_dim", default=4)
    return Mixer(
        kind="linear",
        parameters=hidden * (2 * keys + 2 * inner + 2 * value_heads) + inner * hidden + channels * kernel,
        replicated=2 * value_heads + value_dim,
        state_elements=value_heads * key_dim * value_dim, conv_elements=channels * kernel,
    )


def _mamba(values: ConfigValues, family: str, hidden: int) -> Mixer:
    """The selective state space of Mamba: a state of `size` numbers a channel."""
    expand = values.whole("mamba_expand", "expand", default=2)
    inner = expand * hidden if family == "jamba" else values.whole("intermediate_size", default=expand * hidden)
    size = values.whole("mamba_d_state", "state_size", default=16)
    kernel = values.whole("mamba_d_conv", "conv_kernel", default=4)
    rank = _rank(values, hidden)
    biases = (2 * inner + hidden if values.flag("mamba_proj_bias", "use_bias") else 0) + (
        inner if values.flag("mamba_conv_bias", "use_conv_bias", default=True) else 0)
    return Mixer(
        kind="linear",
        parameters=2 * hidden * inner + inner * kernel + inner * (rank + 2 * size) + rank * inner + inner * hidden,
        replicated=biases + inner + inner * size + inner + (rank + 2 * size if family == "jamba" else 0),
        state_elements=inner * size, conv_elements=inner * kernel,
    )


def _rank(values: ConfigValues, hidden: int) -> int:
    value = values.get("mamba_dt_rank", "time_step_rank")
    return -(-hidden // 16) if value is None or value == "auto" else values.whole("mamba_dt_rank", "time_step_rank")


def _mamba2(values: ConfigValues, hidden: int) -> Mixer:
    """The state space of Mamba-2: a matrix [head, state] a head."""
    expand = values.whole("mamba_expand", "expand", default=2)
    inner = values.whole("mamba_d_ssm", default=expand * hidden)
    heads = values.whole("mamba_n_heads", "num_heads", default=128)
    size = values.whole("mamba_d_state", "state_size", default=128)
    groups = values.whole("mamba_n_groups", "n_groups", default=1)
    kernel = values.whole("mamba_d_conv", "conv_kernel", default=4)
    channels = inner + 2 * groups * size
    biased = values.flag("mamba_proj_bias", "use_bias")
    gate_norm = inner if values.flag("mamba_rms_norm", default=True) else 0
    into = inner + channels + heads
    return Mixer(
        kind="linear",
        parameters=hidden * into + channels * kernel + inner * hidden,
        replicated=3 * heads + gate_norm + (into + hidden if biased else 0)
        + (channels if values.flag("mamba_conv_bias", "use_conv_bias", default=True) else 0),
        state_elements=inner * size, conv_elements=channels * kernel,
    )
