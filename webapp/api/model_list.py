"""`GET /v1/models`: the names that a caller may use, chat models first, adapters last."""

from collections.abc import Container
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
    rows: list[tuple[str, Version]] = [*bare_versions(versions).items(), *((str(row), row) for row in versions)]
    rows += [(f"{version.model.name}@{alias.name}", version) for version in versions for alias in version.aliases.all()]
    adapters = [version for version in usable if version.model.kind == Kind.ADAPTER]
    loads, beside = version_loads(versions), adapters_loaded(adapters)
    return [*(_entry(name, version, loads[version.pk]) for name, version in rows),
            *_adapter_entries(adapters, {version.pk: version for version in versions}, loads, beside)]


def _adapter_entries(adapters: list[Version], bases: dict[int, Version], loads: dict[int, VersionLoad],
                     beside: set[tuple[int, int]]) -> list[dict[str, Any]]:
    """Each adapter by the bare names of both, then by version."""
    base_of = {row.pk: bases[row.parent_id] for row in adapters if row.parent_id in bases}
    usable = [row for row in adapters if row.pk in base_of]
    found = [(f"{base_of[row.pk].model.name}+{row.model.name}", row) for row in bare_versions(usable).values()]
    found += [(full_name(base_of[row.pk], row), row) for row in usable]
    return [_entry(name, base_of[row.pk], loads[base_of[row.pk].pk], row, beside) for name, row in found]


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
