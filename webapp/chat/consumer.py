"""The chat socket: one a page, over which messages go out and every followed reply comes in, token by token."""

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.core.exceptions import ObjectDoesNotExist
from redis.exceptions import RedisError

from webapp.chat import answers
from webapp.chat.errors import ChatRefused, SignedOut
from webapp.chat.events import FrameEvent, SessionEnded, frame_event
from webapp.chat.frames import (
    BadFrame,
    BrowserFrame,
    ErrorFrame,
    GenerationDeltas,
    GenerationStop,
    GenerationView,
    GenerationWatch,
    MessageCreated,
    MessageRegenerate,
    MessageSend,
    Outgoing,
    Ping,
    Pong,
    encode,
    parse,
)
from webapp.chat.watches import Fit, Row, Watch, catch_up
from webapp.serving.errors import GenerationRefused
from webapp.serving.events import Delta, StepEvent, user_group
from webapp.serving.models import ENDED

log = logging.getLogger(__name__)

NOT_SIGNED_IN = 4401
SILENCE_S = 2.0  # a followed generation that says nothing for so long is read from the row and the stream
TICK_S = 0.5
MAX_WATCHED = 256


class ChatConsumer(AsyncWebsocketConsumer):
    """Parses frames, calls one function of `answers` for each, and passes on the steps of the generations it follows.

    `turn` lets one message or tick at a time at the socket's state, so frames leave in the order of what they tell.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.turn = asyncio.Lock()
        self.watches: dict[str, Watch] = {}
        self.ticker: asyncio.Task[None] | None = None
        self.user = scope["user"]
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self.ticker is not None:
                self.ticker.cancel()

    async def dispatch(self, message: dict[str, Any]) -> None:
        async with self.turn:
            if message["type"] == "generation.step":  # many a second: no hop to the database thread for these
                await self.generation_step(message)  # type: ignore[arg-type]
            else:
                await super().dispatch(message)

    async def connect(self) -> None:
        await self.accept()  # before a refusal too: a browser sees the code only of a socket that was open
        if not self.user.is_authenticated:
            await self.close(NOT_SIGNED_IN)
            return
        await self.channel_layer.group_add(user_group(self.user.pk), self.channel_name)

    async def disconnect(self, code: int) -> None:
        if self.user.is_authenticated:
            with suppress(RedisError, OSError):  # Redis forgets a lost connection's groups by itself
                await self.channel_layer.group_discard(user_group(self.user.pk), self.channel_name)

    # Frames from the browser

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if not self.user.is_authenticated:
            return
        try:
            frame = parse(text_data)
        except BadFrame as error:
            await self.put(ErrorFrame(code="bad_frame", message=error.message, field=error.field, ref=error.ref))
            return
        try:
            await self.carry_out(frame)
        except SignedOut:
            await self.sign_out()
        except Exception as error:
            await self.put(error_frame(error, ref=frame.ref))

    async def carry_out(self, frame: BrowserFrame) -> None:
        match frame:
            case Ping():
                await self.put(Pong(ref=frame.ref))
            case MessageSend():
                await self.created(await database_sync_to_async(answers.send)(self.user, frame), frame.ref)
            case MessageRegenerate():
                await self.created(await database_sync_to_async(answers.regenerate)(self.user, frame), frame.ref)
            case GenerationWatch():
                await self.follow(frame, await database_sync_to_async(answers.row)(self.user, frame))
            case GenerationStop():
                await self.stopped(frame, await database_sync_to_async(answers.stop)(self.user, frame))

    async def created(self, frame: MessageCreated, ref: str | None) -> None:
        """Show the new exchange here and on the user's other pages; follow its reply here."""
        view = frame.reply["generation"]
        self.watch(Watch(generation=view["id"], heard_at=time.monotonic(), view=view))
        await self.put(msgspec.structs.replace(frame, ref=ref))
        try:
            await self.channel_layer.group_send(user_group(self.user.pk), frame_event(frame, skip=self.channel_name))
        except (RedisError, OSError) as error:
            log.warning("other pages were not told of a new message: %s", error)

    async def follow(self, frame: GenerationWatch, row: Row) -> None:
        generation = str(frame.generation)
        if generation not in self.watches and len(self.watches) >= MAX_WATCHED:
            raise ChatRefused(f"One page follows at most {MAX_WATCHED} replies.", field="generation")
        known = row.index == frame.after  # then the row's text is what the browser has
        watch = Watch(generation=generation, last=frame.after, chars=len(row.text) if known else None,
                      heard_at=time.monotonic())
        self.watch(watch)
        await self.settle(watch, row, whole=frame.after == 0, ref=frame.ref)

    async def stopped(self, frame: GenerationStop, row: Row) -> None:
        watch = self.watches.get(str(frame.generation))
        if watch is None:
            await self.put(GenerationView(view=row.view, ref=frame.ref))
        else:
            await self.settle(watch, row, ref=frame.ref)

    # Messages of the channel layer

    async def chat_frame(self, event: FrameEvent) -> None:
        if event["skip"] != self.channel_name:
            await self.send(text_data=event["frame"])

    async def session_ended(self, event: SessionEnded) -> None:
        if event["session"] == self.scope["session"].session_key:
            await self.sign_out()

    async def generation_step(self, event: StepEvent) -> None:
        """Pass on what follows on what was sent; read the rest, and every end, from the row and the stream."""
        now = time.monotonic()
        behind: dict[str, Watch] = {}
        deltas: list[Delta] = []
        for delta in event["deltas"]:
            if (watch := self.watches.get(delta["generation"])) is None or watch.generation in behind:
                continue
            watch.heard_at = now
            match watch.fit(delta):
                case Fit.NEXT:
                    watch.advance(last=delta["last"], text=delta["text"])
                    deltas.append(delta)
                case Fit.GAP:
                    behind[watch.generation] = watch
        if deltas:
            await self.put(GenerationDeltas(deltas=deltas))
        for view in event["views"]:
            if (watch := self.watches.get(view["id"])) is None:
                continue
            watch.heard_at = now
            if view["state"] in ENDED:
                behind[watch.generation] = watch
            elif watch.generation not in behind:
                await self.put(*watch.view_frame(view))
        await self.read(behind.values())

    async def sign_out(self) -> None:
        self.watches.clear()
        await self.close(NOT_SIGNED_IN)

    # Catching up

    def watch(self, watch: Watch) -> None:
        self.watches[watch.generation] = watch
        if self.ticker is None or self.ticker.done():
            self.ticker = asyncio.create_task(self.tick())

    async def tick(self) -> None:
        """While anything is followed: read what has been silent for too long."""
        while self.watches:
            await asyncio.sleep(TICK_S)
            async with self.turn:
                limit = time.monotonic() - SILENCE_S
                await self.read([watch for watch in self.watches.values() if watch.heard_at < limit])

    async def read(self, watches: Iterable[Watch]) -> None:
        """Bring these up to date from rows and streams. Where that fails, the next tick after a silence tries again."""
        found = list(watches)
        if not found:
            return
        try:
            rows = await database_sync_to_async(answers.rows)(self.user, [watch.generation for watch in found])
            for watch in found:
                watch.heard_at = time.monotonic()
                if watch.generation in rows:
                    await self.settle(watch, rows[watch.generation])
                else:  # its conversation was deleted
                    self.watches.pop(watch.generation, None)
        except Exception:
            log.exception("could not read the generations that a socket follows")

    async def settle(self, watch: Watch, row: Row, *, whole: bool = False, ref: str | None = None) -> None:
        """Send what brings the browser to the row and the stream; an ended generation is done with."""
        await self.put(*await catch_up(watch, row, whole=whole, ref=ref))
        if row.ended:
            self.watches.pop(watch.generation, None)

    async def put(self, *frames: Outgoing) -> None:
        for frame in frames:
            await self.send(text_data=encode(frame))


def error_frame(error: Exception, *, ref: str | None) -> ErrorFrame:
    """Return what the browser is told of an error; of one that nobody foresaw, only that it is in the log."""
    match error:
        case ObjectDoesNotExist():
            return ErrorFrame(code="not_found", message="There is no such conversation, message or reply.", ref=ref)
        case ChatRefused():
            return ErrorFrame(code="refused", message=error.message, field=error.field, ref=ref)
        case GenerationRefused():
            code = "too_long" if error.code == "too_long" else "refused"
            return ErrorFrame(code=code, message=error.message, field=error.field, ref=ref)
    log.error("a frame could not be carried out", exc_info=error)
    return ErrorFrame(code="internal", message="Something went wrong here; the server's log has more.", ref=ref)
