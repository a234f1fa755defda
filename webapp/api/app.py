"""The API: one django-ninja application, whose every error has the shape that OpenAI's clients read."""

from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.parser import Parser
from ninja.renderers import BaseRenderer

from webapp.api import chat, completions, embeddings, model_list, ranking, tokens
from webapp.api.errors import ApiError, invalid, not_json

DESCRIPTION = (
    "Chat, completions, embeddings, rerank and score over the models of this site, for the clients of OpenAI and "
    "Cohere. Keys are made on the site's page of API keys and sent as `Authorization: Bearer sk-parley-…`. A model is "
    "named `model`, `model:version` or `model@alias`, with an adapter as `model+adapter`.")


class JsonParser(Parser):
    """Reads bodies strictly, and remembers what was read for the words of errors."""

    def parse_body(self, request: HttpRequest) -> Any:
        try:
            body = msgspec.json.decode(request.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise not_json(str(error)) from error
        request.json = body  # type: ignore[attr-defined]
        return body


class JsonRenderer(BaseRenderer):
    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        return msgspec.json.encode(data)


api = NinjaAPI(title="Parley", version="1", description=DESCRIPTION, urls_namespace="api", openapi_url=None,
               docs_url=None, parser=JsonParser(), renderer=JsonRenderer())
for module in (chat, completions, embeddings, ranking, tokens, model_list):
    api.add_router("", module.router)


@api.exception_handler(ApiError)
def answer_api_error(request: HttpRequest, error: ApiError) -> HttpResponse:
    return error.response()


@api.exception_handler(ValidationError)
def answer_invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    return invalid(error.errors, getattr(request, "json", None)).response()


@api.exception_handler(HttpError)
def answer_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return ApiError(error.status_code, str(error), code="bad_request").response()


@api.exception_handler(Exception)
def raise_on(request: HttpRequest, error: Exception) -> HttpResponse:
    raise error  # webapp.api.asgi logs it and answers
