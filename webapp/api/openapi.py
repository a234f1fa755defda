"""The API's OpenAPI document, made once."""

import functools

import msgspec
from django.http import HttpRequest, HttpResponse

from webapp.api.app import api
from webapp.api.errors import JSON


@functools.cache
def openapi_json() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(api.get_openapi_schema(path_prefix="/"))


async def openapi(request: HttpRequest) -> HttpResponse:
    """Serve the document; it says nothing that is secret, so no key is needed."""
    return HttpResponse(openapi_json(), content_type=JSON)
