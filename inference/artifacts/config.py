"""Turns a Hugging Face configuration of a llama-shaped decoder into a DecoderSpec, or says what is not understood."""

import math
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.decoder_spec import DecoderSpec, RopeSpec
from inference.spec import SpecError

FAMILIES = ("llama",)
MAX_LAYERS = 10_000


def decoder_spec_from_config(
    config: dict[str, Any], generation_config: dict[str, Any], *, file: str = "config.json"
) -> DecoderSpec:
    """Return the spec that config (and the end ids of generation_config, which win) describe.

    file names the config in errors. Raises ArtifactError for an unknown architecture or an impossible value.
    Defaults are those of transformers' LlamaConfig.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ArtifactError(file, f"the architecture {str(family)[:60]!r} is not supported (known: "
                                  f"{', '.join(FAMILIES)})")
    _refuse_unsupported(config, file)
    hidden, heads = _whole(config, "hidden_size", file), _whole(config, "num_attention_heads", file)
    vocab = _whole(config, "vocab_size", file)
    head_dim = _whole(config, "head_dim", file, hidden // heads)
    if head_dim % 2:
        raise ArtifactError(file, f"head_dim is {head_dim}; rotary embeddings need an even number")
    try:
        return DecoderSpec(
            family=family,
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=_whole(config, "intermediate_size", file),
            num_layers=_whole(config, "num_hidden_layers", file, limit=MAX_LAYERS),
            num_heads=heads,
            num_kv_heads=_whole(config, "num_key_value_heads", file, heads),
            head_dim=head_dim,
            max_position=_whole(config, "max_position_embeddings", file, 2048),
            rms_norm_eps=_positive(config, "rms_norm_eps", file, 1e-6),
            rope=_rope(config, file),
            tie_word_embeddings=_flag(config, "tie_word_embeddings", file),
            attention_bias=_flag(config, "attention_bias", file),
            output_bias=_flag(config, "attention_bias", file),
            mlp_bias=_flag(config, "mlp_bias", file),
            bos_token_id=next(iter(_token_ids("bos_token_id", vocab, config, generation_config, file=file)), None),
            eos_token_ids=_token_ids("eos_token_id", vocab, config, generation_config, file=file),
        )
    except SpecError as error:
        raise ArtifactError(file, str(error)) from None


def _refuse_unsupported(config: dict[str, Any], file: str) -> None:
    if config.get("auto_map"):
        raise ArtifactError(file, "auto_map asks for the model's own Python code, which is never run")
    if config.get("quantization_config"):
        raise ArtifactError(file, "quantization_config: quantised safetensors are not supported")
    if (activation := config.get("hidden_act", "silu")) != "silu":
        raise ArtifactError(file, f"hidden_act is {str(activation)[:40]!r}; only 'silu' is supported")


def _whole(
    config: dict[str, Any], key: str, file: str, default: int | None = None, limit: int = 2**31 - 1
) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise ArtifactError(file, f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= limit:
        raise ArtifactError(file, f"{key} is {str(value)[:40]!r}, not a whole number from 1 to {limit:,}")
    return value


def _positive(config: dict[str, Any], key: str, file: str, default: float | None = None) -> float:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise ArtifactError(file, f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ArtifactError(file, f"{key} is {str(value)[:40]!r}, not a positive number")
    return float(value)


def _flag(config: dict[str, Any], key: str, file: str) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise ArtifactError(file, f"{key} is {str(value)[:40]!r}, not true or false")
    return bool(value)


def _token_ids(key: str, vocab_size: int, config: dict[str, Any], generation_config: dict[str, Any], *,
               file: str) -> tuple[int, ...]:
    """Return the ids under key, from generation_config when it has them; one id or a list of them is allowed."""
    source = "generation_config.json" if generation_config.get(key) is not None else file
    value = generation_config.get(key) if generation_config.get(key) is not None else config.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
            raise ArtifactError(source, f"{key} is {str(token_id)[:40]!r}, not a token id under {vocab_size:,}")
    return tuple(dict.fromkeys(ids))


def _rope(config: dict[str, Any], file: str) -> RopeSpec:
    """Read rope_parameters (transformers 5) or rope_scaling with rope_theta beside it (before)."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise ArtifactError(file, "the rope settings are not an object")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ArtifactError(file, "partial_rotary_factor: rotating a part of the head is not supported")
    theta = _positive(scaling if scaling.get("rope_theta") is not None else config, "rope_theta", file, 10_000.0)
    if kind == "default":
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(theta=theta, kind="linear", factor=_positive(scaling, "factor", file))
    if kind == "llama3":
        low, high = (_positive(scaling, f"{word}_freq_factor", file) for word in ("low", "high"))
        if high <= low:
            raise ArtifactError(file, f"high_freq_factor ({high}) is not above low_freq_factor ({low})")
        return RopeSpec(theta=theta, kind="llama3", factor=_positive(scaling, "factor", file), low_freq_factor=low,
                        high_freq_factor=high,
                        original_max_position=_whole(scaling, "original_max_position_embeddings", file))
    raise ArtifactError(file, f"the rope type {str(kind)[:40]!r} is not supported")
