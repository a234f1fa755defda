"""Reads a configuration's rotary settings into a RopeSpec, in the layouts of transformers 5 and before."""

import math
from typing import Any

from inference.artifacts.config_reader import ConfigReader
from inference.decoder_spec import RopeSpec

DEFAULT_THETA = 10_000.0


def read_rope(
    reader: ConfigReader, *, head_dim: int, section: str | None = None, theta: float = DEFAULT_THETA,
    theta_key: str = "rope_theta", may_be_partial: bool = False, interleaved: bool = False,
) -> RopeSpec:
    """Read rope_parameters (transformers 5) or rope_scaling with rope_theta beside it (before).

    section: the layers' kind, where rope_parameters has one object for each. theta: the family's default. theta_key:
    where the base lies outside of rope_parameters. may_be_partial: whether the family can rotate a part of the head.
    Raises ArtifactError. Source of every rule: transformers' modeling_rope_utils.
    """
    scaling = _section(reader, section)
    outer = _with_outer(reader, scaling, theta_key)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    partial = outer.positive("partial_rotary_factor", 1.0)
    if partial != 1.0 and not may_be_partial:
        reader.refuse("partial_rotary_factor: this family rotates whole heads")
    common: dict[str, Any] = {"theta": outer.positive("rope_theta", theta), "partial": partial,
                              "interleaved": interleaved}
    if kind in ("default", "dynamic"):  # dynamic differs only past the context that the model is served with
        return RopeSpec(**common)
    if kind == "linear":
        return RopeSpec(kind="linear", factor=outer.positive("factor"), **common)
    if kind == "llama3":
        return _llama3(outer, common)
    if kind == "yarn":
        return _yarn(outer, common, reader.whole("max_position_embeddings", 2048))
    if kind in ("longrope", "su"):
        return _longrope(outer, common, reader, int(head_dim * partial) // 2)
    reader.refuse(f"the rope type {str(kind)[:40]!r} is not supported")


def _section(reader: ConfigReader, section: str | None) -> dict[str, Any]:
    settings = reader.get("rope_parameters") or reader.get("rope_scaling") or {}
    if section is not None and isinstance(settings, dict):
        nested = settings.get(section)
        if nested is not None:
            settings = nested
        elif reader.get("rope_parameters"):  # other sections only
            settings = {}
    if not isinstance(settings, dict):
        reader.refuse("the rope settings are not an object")
    return settings


def _with_outer(reader: ConfigReader, scaling: dict[str, Any], theta_key: str) -> ConfigReader:
    """Return a reader of the settings, in which what older layouts keep beside them is inside."""
    outside = {"rope_theta": reader.get(theta_key), "partial_rotary_factor": reader.get("partial_rotary_factor")}
    inside = {key: value for key, value in scaling.items() if value is not None}
    return ConfigReader(outside | inside, reader.file, reader.generation)


def _llama3(outer: ConfigReader, common: dict[str, Any]) -> RopeSpec:
    low, high = (outer.positive(f"{word}_freq_factor") for word in ("low", "high"))
    if high <= low:
        outer.refuse(f"high_freq_factor ({high}) is not above low_freq_factor ({low})")
    return RopeSpec(kind="llama3", factor=outer.positive("factor"), low_freq_factor=low, high_freq_factor=high,
                    original_max_position=outer.whole("original_max_position_embeddings"), **common)


def _yarn(outer: ConfigReader, common: dict[str, Any], max_position: int) -> RopeSpec:
    original = outer.whole("original_max_position_embeddings", max_position)
    factor = outer.positive("factor", max_position / original)
    attention = outer.optional_positive("attention_factor")
    if attention is None:
        scale, all_dims = outer.get("mscale"), outer.get("mscale_all_dim")
        if scale and all_dims:
            attention = yarn_scale(factor, outer.positive("mscale")) / yarn_scale(
                factor, outer.positive("mscale_all_dim"))
        else:
            attention = yarn_scale(factor)
    return RopeSpec(kind="yarn", factor=factor, original_max_position=original, attention_factor=attention,
                    beta_fast=outer.positive("beta_fast", 32.0), beta_slow=outer.positive("beta_slow", 1.0),
                    truncate=outer.flag("truncate", True), **common)


def yarn_scale(factor: float, mscale: float = 1.0) -> float:
    """Return YaRN's attention factor, 0.1 * mscale * ln(factor) + 1. Source: Peng et al. 2023, section 3.4."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _longrope(outer: ConfigReader, common: dict[str, Any], reader: ConfigReader, pairs: int) -> RopeSpec:
    max_position = reader.whole("max_position_embeddings", 4096)
    inside = outer.whole("original_max_position_embeddings", max_position)
    original = reader.whole("original_max_position_embeddings", inside)
    factor = outer.positive("factor", max_position / original)
    attention = outer.optional_positive("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return RopeSpec(kind="longrope", factor=factor, original_max_position=original, attention_factor=attention,
                    short_factor=outer.positives("short_factor", pairs),
                    long_factor=outer.positives("long_factor", pairs), **common)
