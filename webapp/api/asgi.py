"""The API's own way in: Django's handler without sessions, cookies, middleware or a thread for each request.

A stream of Django's ordinary handler holds a thread and a database connection as long as it lasts. Here a request runs
on the event loop alone, asks the database through webapp.serving.database, and ends when its client goes away: the
view, or the stream's generator, is cancelled at once. Cookies mean nothing here, so no other site's page can use them.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from io import BytesIO
from typing import Any

import redis
from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.db import OperationalError
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import get_resolver

from webapp.api.errors import ApiError, failed, no_such_path, overloaded, too_large
from webapp.config.request_ids import HEADER, request_id_begin

logger = logging.getLogger(__name__)
API_URLS = "webapp.api.urls"
API_PATHS = ("/v1/", "/v2/", "/rerank", "/tokenize", "/detokenize")
LENGTH = b"content-length"


def is_api(path: str) -> bool:
    """Whether a path belongs to the API and not to the pages."""
    return path.startswith(API_PATHS)


class EventStream(HttpResponseBase):
    """A reply that is sent piece by piece. on_close: called at its end, however it ends, even if nothing was sent."""

    streaming = True

    def __init__(self, events: AsyncGenerator[bytes, None], *, on_close: Callable[[], None], **more: Any) -> None:
        super().__init__(content_type="text/event-stream; charset=utf-8", **more)
        self.events = events
        self.on_close = on_close
        self["cache-control"] = "no-cache, no-transform"
        self["x-accel-buffering"] = "no"


class ApiHandler(ASGIHandler):
    """Answers requests with the views of webapp.api.urls."""

    def load_middleware(self, is_async: bool = False) -> None:
        """There is none."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.handle(scope, receive, send)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        chosen = request_id_begin(headers.get(HEADER.encode(), b"").decode("latin1"))
        try:
            body = await _read(headers, receive, limit=settings.PARLEY_API_MAX_BODY)
        except RequestAborted:
            return
        except ApiError as error:
            await self._send(error.response(), send, chosen)
            return
        request = ASGIRequest(scope, BytesIO(body))
        request._body = body
        answering = asyncio.create_task(self._answer(request, send, chosen))
        leaving = asyncio.create_task(self._gone(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _gone(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _answer(self, request: ASGIRequest, send: Any, chosen: str) -> None:
        began = time.monotonic()
        response = await self._respond(request)
        try:
            await self._send(response, send, chosen)
        finally:
            if isinstance(response, EventStream):
                response.on_close()
            logger.info("%s %s %d in %.3f s", request.method, request.path, response.status_code,
                        time.monotonic() - began)

    async def _respond(self, request: ASGIRequest) -> HttpResponseBase:
        """Call the view; whatever goes wrong has the shape of errors that clients read."""
        try:
            match = get_resolver(API_URLS).resolve(request.path_info)
            response: HttpResponseBase = await match.func(request, *match.args, **match.kwargs)
        except Http404:
            return no_such_path(request.path, request.method).response()
        except ApiError as error:
            return error.response()
        except (redis.RedisError, OperationalError) as error:
            logger.warning("%s %s waits for its parts: %s", request.method, request.path, error)
            return overloaded("A part of this site does not answer right now.").response()
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return failed("Something went wrong here; the site's log says what.", code="internal_error").response()
        if response.status_code == 405:
            return _not_allowed(request, response).response()
        return response

    async def _send(self, response: HttpResponseBase, send: Any, chosen: str) -> None:
        response[HEADER] = chosen
        response["x-content-type-options"] = "nosniff"
        if not isinstance(response, EventStream):
            assert isinstance(response, HttpResponse)
            response.headers.setdefault("content-length", str(len(response.content)))
            await self.send_response(response, send)
            return
        headers = [(name.encode("ascii"), value.encode("latin1")) for name, value in response.items()]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async with aclosing(response.events) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _read(headers: dict[bytes, bytes], receive: Any, *, limit: int) -> bytes:
    """Read the body. Raises ApiError for one that is too large, RequestAborted when the client goes away."""
    length = headers.get(LENGTH, b"0")
    if length.isdigit() and int(length) > limit:
        raise too_large(limit)
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)


def _not_allowed(request: ASGIRequest, response: HttpResponseBase) -> ApiError:
    allowed = response.get("allow", "")
    return ApiError(405, f"{request.method} is not allowed at {request.path}, only {allowed}.",
                    code="method_not_allowed", headers={"allow": allowed})
