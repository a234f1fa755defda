"""`GET /v1/models`: the names that a caller may use, chat models first."""

from typing import Any

from ninja import Router

from registry.loads import version_loads
from registry.models import Version
from registry.selectors import versions_for
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
    """List each model by its bare name, then by version and by alias."""
    await limits_take(request.auth.limits, tokens=0)
    return {"object": "list", "data": await in_database(_entries, caller=request.auth)}


@router.get("/v1/models/{model_id}", auth=any_key, response={200: ModelEntry, **ERRORS}, operation_id="get_model",
            summary="One model")
async def get_model(request: ApiRequest, model_id: str) -> Any:
    """Say what a name means, in any form that requests take."""
    await limits_take(request.auth.limits, tokens=0)
    return await in_database(_entry_named, reference=model_id, caller=request.auth)


def _entries(*, caller: Caller) -> list[dict[str, Any]]:
    versions = [version for version in versions_for(viewer=caller.user).prefetch_related("aliases")
                if version.model.kind in KINDS]
    versions.sort(key=lambda version: (KINDS.index(version.model.kind), version.model.name, -version.number))
    loads = version_loads(versions)
    names = {version.model.name: model_named(reference=version.model.name, caller=caller).version
             for version in versions}
    rows = list(names.items())
    rows += [(str(version), version) for version in versions]
    rows += [(f"{version.model.name}@{alias.name}", version) for version in versions for alias in version.aliases.all()]
    return [_entry(name, version, loads) for name, version in rows]


def _entry_named(*, reference: str, caller: Caller) -> dict[str, Any]:
    version = model_named(reference=reference, caller=caller).version
    return _entry(reference, version, version_loads([version]))


def _entry(name: str, version: Version, loads: dict[int, Any]) -> dict[str, Any]:
    load = loads[version.pk]
    return {"id": name, "object": "model", "created": int(version.created_at.timestamp()), "owned_by": OWNER,
            "kind": version.model.kind, "version": str(version), "max_model_len": load.limit or version.context_length,
            "loaded": load.state == "loaded"}
