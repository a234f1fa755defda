"""The socket of the registry's pages: one a page, over which its parts come again whenever they have changed."""

import asyncio
import json
import logging
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist

from webapp.catalog.live import LIVE_PAGES, Watch

log = logging.getLogger(__name__)

NOT_SIGNED_IN = 4401
TICK_S = 1.0
MAX_FRAME_CHARS = 4096


class CatalogConsumer(AsyncWebsocketConsumer):
    """Takes {"type": "watch", "page", "args"} once and {"type": "ping"}; sends "parts", "gone", "pong" and "error".

    What it shows comes from rows and Redis, about once a second: many processes write there, and none has to tell it.
    """

    async def connect(self) -> None:
        self.user = self.scope["user"]
        self.ticker: asyncio.Task[None] | None = None
        await self.accept()  # before a refusal too: a browser sees the code only of a socket that was open
        if not self.user.is_authenticated:
            await self.close(NOT_SIGNED_IN)

    async def disconnect(self, code: int) -> None:
        if self.ticker is not None:
            self.ticker.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if not self.user.is_authenticated:
            return
        match _parsed(text_data):
            case {"type": "ping"}:
                await self.put({"type": "pong"})
            case {"type": "watch", "page": str(page), "args": dict(args)} if page in LIVE_PAGES and _plain(args):
                if self.ticker is not None:
                    self.ticker.cancel()
                self.ticker = asyncio.create_task(self.tick(Watch(page=page, args=args)))
            case _:
                await self.put({"type": "error", "message": "This is not a frame that the page's socket knows."})

    async def tick(self, watch: Watch) -> None:
        while True:
            try:
                parts = await self.read(watch)
            except ObjectDoesNotExist:
                await self.put({"type": "gone"})
                return
            except SignedOut:
                await self.close(NOT_SIGNED_IN)
                return
            except Exception:  # the next tick tries again
                log.exception("could not render the page %s", watch.page)
                parts = {}
            if parts:
                await self.put({"type": "parts", "parts": parts})
            await asyncio.sleep(TICK_S)

    async def read(self, watch: Watch) -> dict[str, str]:
        """Render in a thread of its own: the one that all sockets share is for the chat's short reads."""
        found: dict[str, str] = await database_sync_to_async(_changes, thread_sensitive=False)(
            watch, self.user.pk, self.scope["session"])
        return found

    async def put(self, frame: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(frame))


class SignedOut(Exception):
    """The person behind a socket has signed out, or may no longer sign in."""


def _changes(watch: Watch, user_pk: int, session: Any) -> dict[str, str]:
    """Look at person and session each time: a page of somebody who left, or is no administrator any more, says so."""
    user = User.objects.filter(pk=user_pk, is_active=True).first()
    if user is None or not session.exists(session.session_key):
        raise SignedOut
    return watch.changes(user)


def _parsed(text: str | None) -> Any:
    if text is None or len(text) > MAX_FRAME_CHARS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plain(args: dict[Any, Any]) -> bool:
    return all(isinstance(value, str) for value in args.values())
