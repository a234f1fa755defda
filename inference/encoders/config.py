"""Turns a Hugging Face configuration of an encoder into an EncoderSpec, or says what is not understood."""

from collections.abc import Callable
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.encoders.spec import Activation, EncoderSpec
from inference.spec import SpecError

CONFIG = "config.json"
Config = dict[str, Any]

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu", "silu": "silu", "swish": "silu", "swiglu": "silu", "geglu": "gelu",
}  # fmt: skip


def is_encoder(config: Config) -> bool:
    """Whether config.json describes one of the encoders that we run."""
    return config.get("model_type") in _FAMILIES


def encoder_spec_from_config(config: Config) -> EncoderSpec:
    """Return the shape that config.json describes. Raises ArtifactError for an unknown family or impossible value."""
    family = config.get("model_type")
    make = _FAMILIES.get(family) if isinstance(family, str) else None
    if make is None:
        raise ArtifactError(CONFIG, f"model_type {str(family)[:60]!r} is none of the encoders known here: "
                                    f"{', '.join(_FAMILIES)}")
    try:
        return make(config)
    except SpecError as error:
        raise ArtifactError(CONFIG, str(error)) from None
    except (TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(CONFIG, f"a value of this {family} encoder has the wrong type ({error})") from None


def _value(config: Config, *names: str) -> Any:
    """Return the first of these keys that is set."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise ArtifactError(CONFIG, f"{names[0]} is missing")


def _optional(config: Config, default: Any, *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), default)


def _require(config: Config, name: str, *allowed: Any) -> None:
    value = config.get(name)
    if value is not None and value not in allowed:
        raise ArtifactError(CONFIG, f"{name} {str(value)[:60]!r} is not supported, only {allowed[0]!r}")


def _activation(config: Config, *names: str) -> Activation:
    name = _optional(config, "gelu", *names)
    if name not in _ACTIVATIONS:
        raise ArtifactError(CONFIG, f"{names[0]} {str(name)[:60]!r} is not known: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _labels(config: Config) -> int:
    """Outputs of the classifier: as many as id2label names, two where the file says nothing."""
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    if not any(isinstance(name, str) and name.endswith("ForSequenceClassification") for name in names):
        return 0
    labels = config.get("id2label")
    return len(labels) if isinstance(labels, dict) else int(_optional(config, 2, "num_labels"))


def _sizes(config: Config) -> dict[str, Any]:
    return {
        "vocab_size": _value(config, "vocab_size"), "hidden_size": _value(config, "hidden_size"),
        "intermediate_size": _value(config, "intermediate_size"), "num_layers": _value(config, "num_hidden_layers"),
        "num_heads": _value(config, "num_attention_heads"), "labels": _labels(config),
    }  # fmt: skip


def _bert(config: Config) -> EncoderSpec:
    _require(config, "position_embedding_type", "absolute")
    _require(config, "is_decoder", False)
    _require(config, "add_cross_attention", False)
    rows = _value(config, "max_position_embeddings")
    return EncoderSpec(
        **_sizes(config), family="bert", max_position=rows, position_rows=rows,
        token_types=_optional(config, 2, "type_vocab_size"), norm_eps=_optional(config, 1e-12, "layer_norm_eps"),
        activation=_activation(config, "hidden_act"),
    )  # fmt: skip


def _roberta(config: Config) -> EncoderSpec:
    """RoBERTa and XLM-RoBERTa: BERT whose positions are counted from behind the padding id."""
    _require(config, "position_embedding_type", "absolute")
    _require(config, "is_decoder", False)
    rows, offset = _value(config, "max_position_embeddings"), _optional(config, 1, "pad_token_id") + 1
    return EncoderSpec(
        **_sizes(config), family="roberta", max_position=rows - offset, position_rows=rows, position_offset=offset,
        token_types=_optional(config, 2, "type_vocab_size"), norm_eps=_optional(config, 1e-12, "layer_norm_eps"),
        activation=_activation(config, "hidden_act"),
    )  # fmt: skip


def _distilbert(config: Config) -> EncoderSpec:
    rows = _value(config, "max_position_embeddings")
    return EncoderSpec(
        family="distilbert", vocab_size=_value(config, "vocab_size"), hidden_size=_value(config, "dim", "hidden_size"),
        intermediate_size=_value(config, "hidden_dim"), num_layers=_value(config, "n_layers", "num_hidden_layers"),
        num_heads=_value(config, "n_heads", "num_attention_heads"), labels=_labels(config), max_position=rows,
        position_rows=rows, norm_eps=1e-12, activation=_activation(config, "activation"), head_activation="relu",
    )  # fmt: skip


def _mpnet(config: Config) -> EncoderSpec:
    rows = _value(config, "max_position_embeddings")
    return EncoderSpec(
        **_sizes(config), family="mpnet", max_position=rows - 2, position_rows=rows, position_offset=2,
        norm_eps=_optional(config, 1e-12, "layer_norm_eps"), activation=_activation(config, "hidden_act"),
        relative_buckets=_optional(config, 32, "relative_attention_num_buckets"),
    )  # fmt: skip


def _nomic_bert(config: Config) -> EncoderSpec:
    """Nomic's BERT: rotary positions and SwiGLU. Its configuration has GPT-2's names, or BERT's in transformers 5."""
    for name, allowed in (("rotary_emb_fraction", (1.0, 1)), ("rotary_emb_interleaved", (False,)),
                          ("rotary_emb_scale_base", ()), ("prenorm", (False,)), ("use_rms_norm", (False,)),
                          ("parallel_block", (False,)), ("causal", (False,)), ("num_experts", (0,))):
        value = config.get(name)
        if value is not None and value not in allowed:
            raise ArtifactError(CONFIG, f"{name} {str(value)[:60]!r} is not supported")
    rope = _optional(config, {}, "rope_parameters")
    theta = _optional(config, rope.get("rope_theta", 1000.0), "rotary_emb_base", "default_theta")
    longest = _value(config, "max_position_embeddings", "n_positions")
    if config.get("labels") or _labels(config):
        raise ArtifactError(CONFIG, "a classifier over nomic_bert is not supported")
    return EncoderSpec(
        family="nomic_bert", vocab_size=_value(config, "vocab_size"),
        hidden_size=_value(config, "hidden_size", "n_embd"), num_layers=_value(config, "num_hidden_layers", "n_layer"),
        intermediate_size=_value(config, "intermediate_size", "n_inner"), rope_theta=theta,
        num_heads=_value(config, "num_attention_heads", "n_head"), gated=True,
        max_position=min(longest, _optional(config, longest, "max_trained_positions")),  # beyond: scaled RoPE, not here
        norm_eps=_optional(config, 1e-12, "layer_norm_eps", "layer_norm_epsilon"),
        token_types=_optional(config, 2, "type_vocab_size"),
        activation=_activation(config, "hidden_act", "activation_function"), attention_bias=False, mlp_bias=False,
    )  # fmt: skip


def _modernbert(config: Config) -> EncoderSpec:
    """ModernBERT: norms first, GeGLU, rotary positions, local layers between global ones."""
    every = _global_every(config)
    rope = _optional(config, {}, "rope_parameters")
    if config.get("rope_scaling") is not None or any(
        isinstance(kind, dict) and kind.get("rope_type", "default") != "default" for kind in rope.values()
    ):
        raise ArtifactError(CONFIG, "scaled rotary positions are not supported for modernbert")
    full, local = rope.get("full_attention") or {}, rope.get("sliding_attention") or {}
    return EncoderSpec(
        **_sizes(config), family="modernbert", max_position=_value(config, "max_position_embeddings"),
        norm_eps=_optional(config, 1e-5, "norm_eps"), activation=_activation(config, "hidden_activation"),
        pre_norm=True, gated=True, norm_bias=_optional(config, False, "norm_bias"),
        attention_bias=_optional(config, False, "attention_bias"), mlp_bias=_optional(config, False, "mlp_bias"),
        rope_theta=_optional(config, full.get("rope_theta", 160_000.0), "global_rope_theta"),
        local_rope_theta=_optional(config, local.get("rope_theta", 10_000.0), "local_rope_theta"),
        local_window=_optional(config, 128, "local_attention") // 2, global_every=every,
        head_pooling="mean" if config.get("classifier_pooling") == "mean" else "first",
        head_bias=_optional(config, False, "classifier_bias"),
        head_activation=_activation(config, "classifier_activation"),
    )  # fmt: skip


def _global_every(config: Config) -> int:
    """Every how many layers one is global; layer_types, where given, must follow such a pattern."""
    every = _optional(config, 3, "global_attn_every_n_layers")
    types = config.get("layer_types")
    if isinstance(types, list) and types:
        whole = [index for index, kind in enumerate(types) if kind == "full_attention"]
        every = whole[1] - whole[0] if len(whole) > 1 else len(types)
        expected = ["sliding_attention" if index % every else "full_attention" for index in range(len(types))]
        if types != expected:
            raise ArtifactError(CONFIG, "layer_types is not global layers at equal distances from layer 0 on")
    if not isinstance(every, int) or every < 1:
        raise ArtifactError(CONFIG, "global_attn_every_n_layers must be at least 1")
    return every


_FAMILIES: dict[str, Callable[[Config], EncoderSpec]] = {
    "bert": _bert, "roberta": _roberta, "xlm-roberta": _roberta, "xlm_roberta": _roberta, "camembert": _roberta,
    "distilbert": _distilbert, "mpnet": _mpnet, "nomic_bert": _nomic_bert, "modernbert": _modernbert,
}  # fmt: skip
