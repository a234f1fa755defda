"""Gives each request an id that its reply, the logs and the generation carry: `x-request-id`, given or made."""

import logging
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from uuid import uuid4

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

HEADER = "x-request-id"
_USABLE = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_current: ContextVar[str] = ContextVar("request_id", default="")

Next = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


def request_id() -> str:
    """The id of the request that is being answered; empty outside of one."""
    return _current.get()


def request_id_begin(given: str | None) -> str:
    """Take the client's id where it is short and plain, else make one, for everything that this context does next."""
    chosen = given if given and _USABLE.match(given) else f"req-{uuid4().hex}"
    _current.set(chosen)
    return chosen


class RequestIdMiddleware:
    """Outermost of the site's middleware, so that every reply of a page has the header too."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._answer_async(request)
        chosen = request_id_begin(request.headers.get(HEADER))
        response = self.get_response(request)
        assert isinstance(response, HttpResponseBase)
        response[HEADER] = chosen
        return response

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        chosen = request_id_begin(request.headers.get(HEADER))
        answer = self.get_response(request)
        assert not isinstance(answer, HttpResponseBase)
        response = await answer
        response[HEADER] = chosen
        return response


class RequestIdFilter(logging.Filter):
    """Adds ` [id]` to what is logged while a request is answered, as `%(request)s`."""

    def filter(self, record: logging.LogRecord) -> bool:
        found = _current.get()
        record.request = f" [{found}]" if found else ""
        return True
