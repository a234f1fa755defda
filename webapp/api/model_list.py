"""`GET /v1/models`: the names that a caller may use, chat models first, adapters last."""

from collections.abc import Container, Iterator
from typing import Any

from ninja import Router

from registry.loads import VersionLoad, adapters_loaded, version_loads
from registry.models import Kind, Version
from registry.selectors import bare_versions, full_name, versions_for
from webapp.api.admission import model_named
from webapp.api.auth import ApiRequest, Caller, any_key
from webapp.api.limits import limits_take
from webapp.api.schemas.base import ERRORS
from webapp.api.schemas.model_list import ModelEntry, ModelList
from webapp.serving.database import in_database

router = Router(tags=["Models"])
OWNER = "parley"
KINDS = ("chat", "embedding", "rerank")


@router.get("/v1/models", auth=any_key, response={200: ModelList, **ERRORS}, operation_id="list_models",
            summary="All models")
async def list_models(request: ApiRequest) -> Any:
    """List each model by its bare name, then by version and by alias; adapters as `model+adapter`."""
    await limits_take(request.auth.limits, tokens=0)
    return {"object": "list", "data": await in_database(_entries, caller=request.auth)}


@router.get("/v1/models/{model_id}", auth=any_key, response={200: ModelEntry, **ERRORS}, operation_id="get_model",
            summary="One model")
async def get_model(request: ApiRequest, model_id: str) -> Any:
    """Say what a name means, in any form that requests take."""
    await limits_take(request.auth.limits, tokens=0)
    return await in_database(_entry_named, reference=model_id, caller=request.auth)


def _entries(*, caller: Caller) -> list[dict[str, Any]]:
    usable = list(versions_for(viewer=caller.user).prefetch_related("aliases"))
    versions = [version for version in usable if version.model.kind in KINDS]
    versions.sort(key=lambda version: (KINDS.index(version.model.kind), version.model.name, -version.number))
    adapters = [version for version in usable if version.model.kind == Kind.ADAPTER]
    loads, beside = version_loads(versions), adapters_loaded(adapters)
    return [_entry(name, version, loads[version.pk], adapter, beside)
            for name, version, adapter in [*_version_names(versions), *_adapter_names(adapters, versions)]]


def _version_names(versions: list[Version]) -> Iterator[tuple[str, Version, None]]:
    """Each version under its model's bare name, where that leads to it, its full name and its aliases."""
    for name, version in bare_versions(versions).items():
        yield name, version, None
    for version in versions:
        yield str(version), version, None
    for version in versions:
        for alias in version.aliases.all():
            yield f"{version.model.name}@{alias.name}", version, None


def _adapter_names(adapters: list[Version], versions: list[Version]) -> Iterator[tuple[str, Version, Version]]:
    """Each adapter whose base is usable, by the bare names of both, then by version."""
    bases = {version.pk: version for version in versions}
    pairs = {adapter.pk: (bases[adapter.parent_id], adapter) for adapter in adapters if adapter.parent_id in bases}
    for newest in bare_versions(adapter for _, adapter in pairs.values()).values():
        base, adapter = pairs[newest.pk]
        yield f"{base.model.name}+{adapter.model.name}", base, adapter
    for base, adapter in pairs.values():
        yield full_name(base, adapter), base, adapter


def _entry_named(*, reference: str, caller: Caller) -> dict[str, Any]:
    named = model_named(reference=reference, caller=caller)
    beside = adapters_loaded([named.adapter]) if named.adapter else set()
    return _entry(reference, named.version, version_loads([named.version])[named.version.pk], named.adapter, beside)


def _entry(name: str, version: Version, load: VersionLoad, adapter: Version | None = None,
           beside: Container[tuple[int, int]] = ()) -> dict[str, Any]:
    """beside: which adapters are loaded, as (version, adapter)."""
    loaded = load.state == "loaded" and (adapter is None or (version.pk, adapter.pk) in beside)
    return {"id": name, "object": "model", "created": int((adapter or version).created_at.timestamp()),
            "owned_by": OWNER, "kind": version.model.kind, "version": full_name(version, adapter),
            "max_model_len": load.limit or version.context_length, "loaded": loaded}
