"""Turns a configuration, as config.json has it, into the shape that plans are made of, and puts a shape in words."""

from collections.abc import Mapping
from typing import Any

from inference.planner import decoders, encoders, recurrent
from inference.planner.config_values import ConfigValues
from inference.planner.result import Architecture, AttentionKind
from inference.planner.shape import ModelShape
from inference.spec import SpecError

NESTED = ("text_config", "language_config", "llm_config")
# Configurations of models with images name their text part's family or leave it out.
TEXT_FAMILIES = {"gemma3": "gemma3_text", "mistral3": "mistral", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2",
                 "qwen2_5_vl_text": "qwen2", "qwen2_vl_text": "qwen2", "llava": "llama"}


def shape_from_config(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape that a configuration describes. Raises SpecError, naming the key, for impossible values."""
    config, nested = _text_part(config)
    values = ConfigValues(config)
    family = values.text("model_type")
    if not family:
        raise SpecError("model_type", "is missing from the configuration")
    family = TEXT_FAMILIES.get(family, family)
    if family in encoders.FAMILIES:
        return encoders.encoder_shape(values, family)
    make = recurrent.recurrent_shape if family in recurrent.FAMILIES else decoders.decoder_shape
    shape = make(values, family)
    if not nested:
        return shape
    return ModelShape(**{**vars(shape), "notes": (*shape.notes, "Only the text part of this model is counted.")})


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the configuration of the language model: of a model with images, that is a section of its own."""
    for key in NESTED:
        section = config.get(key)
        if isinstance(section, Mapping) and "hidden_size" not in config:
            outer = {name: config[name] for name in ("model_type", "tie_word_embeddings", "quantization_config",
                                                     "torch_dtype", "dtype") if config.get(name) is not None}
            return {**outer, **section}, True
    return config, False


def attention_kind(shape: ModelShape) -> AttentionKind:
    """Return how keys and values are kept, over all layers."""
    kinds = {mixer.kind for mixer in shape.mixers}
    if kinds == {"linear"} or not kinds:
        return "none"
    if "linear" in kinds:
        return "hybrid"
    if "latent" in kinds:
        return "mla"
    if shape.kv_heads == shape.heads:
        return "mha"
    return "mqa" if shape.kv_heads == 1 else "gqa"


def describe(shape: ModelShape) -> Architecture:
    """Return the shape as a page shows it."""
    windows = [mixer.window for mixer in shape.mixers if mixer.window is not None]
    mixtures = [layer.mlp for layer in shape.layers if layer.mlp.experts]
    return Architecture(
        family=shape.family, kind=shape.kind, layers=len(shape.layers), hidden_size=shape.hidden, heads=shape.heads,
        kv_heads=shape.kv_heads, head_dim=shape.head_dim, vocabulary=shape.vocabulary, context=shape.context,
        experts=max((mlp.experts for mlp in mixtures), default=0),
        experts_active=max((mlp.active for mlp in mixtures), default=0),
        mixture_layers=len(mixtures), sliding_layers=len(windows), window=max(windows, default=0),
        linear_layers=sum(mixer.kind == "linear" for mixer in shape.mixers), tied_embeddings=shape.tied,
        precision=shape.quantisation or shape.precision, attention=attention_kind(shape),
    )
