"""What goes wrong in the API, in the shape that OpenAI's clients read: message, type, param and code."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.http import HttpResponse

from webapp.serving.errors import GenerationRefused, PromptTooLong, VersionUnavailable

JSON = "application/json"
UNSET = "extra_forbidden"
RETRY_SECONDS = 5


class ApiError(Exception):
    """An answer that isn't 2xx. param: the field of the request that it is about, such as `messages[0].content`."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None,
                 kind: str = "invalid_request_error", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.kind = kind
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> HttpResponse:
        return HttpResponse(msgspec.json.encode(self.body), status=self.status, content_type=JSON,
                            headers=self.headers)


def bad_value(param: str, message: str, *, code: str | None = "invalid_value") -> ApiError:
    return ApiError(400, message, code=code, param=param)


def model_not_found(name: str) -> ApiError:
    """The same for a model that doesn't exist and for one that the caller may not use."""
    return ApiError(404, f"The model {name[:100]!r} does not exist or you do not have access to it.",
                    code="model_not_found", param="model")


def no_such_path(path: str, method: str | None) -> ApiError:
    return ApiError(404, f"There is nothing at {method} {path[:200]}.", code="unknown_url")


def bad_key() -> ApiError:
    return ApiError(401, "No usable API key: send `Authorization: Bearer sk-parley-…`. Keys are made on this site's "
                         "page of API keys.", code="invalid_api_key", kind="authentication_error",
                    headers={"www-authenticate": "Bearer"})


def missing_scope(scope: str) -> ApiError:
    return ApiError(403, f"This key doesn't have the scope {scope!r}.", code="insufficient_scope",
                    kind="permission_error")


def too_large(limit: int) -> ApiError:
    return ApiError(413, f"The request's body has more than {limit:,} bytes.", code="request_too_large")


def overloaded(message: str, *, retry_after: float = RETRY_SECONDS) -> ApiError:
    return ApiError(503, message, code="overloaded", kind="service_unavailable_error",
                    headers={"retry-after": str(math.ceil(retry_after))})


def failed(message: str, *, code: str = "generation_failed") -> ApiError:
    return ApiError(500, message, code=code, kind="server_error")


def refused(error: GenerationRefused, *, prompt: str = "messages") -> ApiError:
    """A refusal of webapp.serving. prompt: the field that the prompt came from."""
    if isinstance(error, PromptTooLong):
        return ApiError(400, f"This model's maximum context length is {error.limit} tokens, the reply included. "
                             f"However, your prompt has {error.prompt_tokens} tokens.",
                        code="context_length_exceeded", param=prompt)
    if isinstance(error, VersionUnavailable):
        return overloaded(error.message, retry_after=30)
    if error.code == "template":
        return bad_value(prompt, error.message)
    return bad_value(_FIELDS.get(error.field, error.field), error.message)


_FIELDS = {"constraint": "response_format", "text": "messages"}


def not_json(reason: str) -> ApiError:
    return ApiError(400, f"The request's body is not JSON: {reason}", code="invalid_json")


def invalid(errors: Iterable[Mapping[str, Any]], body: object) -> ApiError:
    """The answer to what pydantic found: the one error that lies deepest, and of those one about more than the type.

    errors: ninja.errors.ValidationError.errors. body: the parsed request, to tell its keys from names of types.
    """
    found = [(_param(error["loc"][2:], body, missing=error["type"] == "missing"), error) for error in errors]
    param, error = max(found, key=lambda pair: (pair[0].count(".") + pair[0].count("["),
                                                not pair[1]["type"].endswith("_type")))
    if error["type"] == UNSET:
        return ApiError(400, f"Unsupported parameter: {param!r}. It is unknown or not supported here.",
                        code="unsupported_parameter", param=param)
    if error["type"] == "missing":
        return ApiError(400, f"Missing required parameter: {param!r}.", code="missing_required_parameter", param=param)
    message = re.sub(r"\AValue error, ", "", str(error["msg"]))
    return ApiError(400, f"Invalid {param!r}: {message}." if param else f"{message}.", param=param or None,
                    code="invalid_type" if error["type"].endswith("_type") else "invalid_value")


def _param(loc: Sequence[str | int], body: object, *, missing: bool) -> str:
    """Write a place in the body as `messages[0].content`; parts of `loc` that name types are left out.

    missing: the last part is a key that the body lacks.
    """
    parts, here = "", body
    for number, step in enumerate(loc):
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
            parts += f"[{step}]"
            continue
        elif not (missing and number == len(loc) - 1):
            continue
        parts += f".{step}" if parts else str(step)
    return parts
