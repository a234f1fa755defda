"""What every request body has in common: unknown fields are refused, and nothing is turned into another type."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MAX_MODEL_CHARS = 200


Text = Annotated[str, Field(min_length=1)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]


class Body(BaseModel):
    """A request, or a part of one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelBody(Body):
    """A request to a model: `model`, `model:version` or `model@alias`, each with `+adapter` behind it where wished."""

    model: str = Field(min_length=1, max_length=MAX_MODEL_CHARS, examples=["smollm2"])


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorReply(BaseModel):
    """What every answer outside of 2xx says."""

    error: ErrorDetail


ERRORS: dict[int, Any] = dict.fromkeys((400, 401, 403, 404, 405, 413, 429, 500, 503), ErrorReply)
"""The statuses that any endpoint may answer with, for the OpenAPI document."""

_EVENT = {"type": "object", "required": ["data"], "properties": {
    "event": {"type": "string"}, "data": {"type": "string", "description": "A chunk or an error as JSON, or [DONE]."}}}
STREAMED: dict[str, Any] = {"responses": {200: {"content": {"text/event-stream": {"schema": _EVENT}}}}}
"""What replies with `stream` add to the OpenAPI document."""
