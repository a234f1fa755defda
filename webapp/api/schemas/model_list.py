"""Replies of `/v1/models`."""

from typing import Literal

from webapp.api.schemas.base import Body


class ModelEntry(Body):
    """A name that requests may use. kind, version, max_model_len and loaded are extras."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    kind: str
    version: str
    max_model_len: int
    loaded: bool


class ModelList(Body):
    object: Literal["list"] = "list"
    data: list[ModelEntry]
