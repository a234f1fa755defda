"""What may be set on a deployment, and whether an engine can be started with it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from inference.spec import EngineConfig, SpecError
from registry.models import Deployment

ENGINE_SETTINGS = ("device", "mode", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_bytes",
                   "kv_dtype")
POLICY_SETTINGS = ("idle_seconds", "load_at_start", "load_on_pick")
SETTINGS = (*ENGINE_SETTINGS, *POLICY_SETTINGS)
MOST = {"max_model_len": 2**31 - 1, "max_num_seqs": 4096, "max_num_batched_tokens": 2**20, "kv_cache_bytes": 2**50,
        "idle_seconds": 10 * 365 * 86400}
_ENGINE_FIELDS = {field.name for field in dataclasses.fields(EngineConfig)}


def engine_arguments(deployment: Deployment) -> dict[str, Any]:
    """Return the deployment's settings as arguments of EngineConfig; what isn't set is left to the engine.

    Raises SpecError for a setting that this engine doesn't have.
    """
    given = {name: getattr(deployment, name) for name in ENGINE_SETTINGS}
    given = {name: value for name, value in given.items() if value not in (None, "")}
    for name in given:
        if name not in _ENGINE_FIELDS:
            raise SpecError(name, "can't be set with this engine")
    given.setdefault("max_num_batched_tokens", max(EngineConfig(model="any").max_num_batched_tokens,
                                                   deployment.max_num_seqs))
    return given


def apply_settings(deployment: Deployment, settings: Mapping[str, Any]) -> list[str]:
    """Set these fields on an unsaved deployment and return those that changed. Raises SpecError, naming the field."""
    changed = []
    for name, value in settings.items():
        if name not in SETTINGS:
            raise SpecError(name, "is not a setting of a deployment")
        if name in MOST and value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST[name]):
            raise SpecError(name, f"must be a whole number from 1 to {MOST[name]:,}, or empty")
        if getattr(deployment, name) != value:
            setattr(deployment, name, value)
            changed.append(name)
    for name in ("mode", "max_num_seqs"):
        if not getattr(deployment, name):
            raise SpecError(name, "must be set")
    limit = deployment.version.context_length
    if deployment.max_model_len and limit and deployment.max_model_len > limit:
        raise SpecError("max_model_len", f"must be at most {limit:,}, the model's own limit")
    EngineConfig(model="any", **engine_arguments(deployment))
    return changed
