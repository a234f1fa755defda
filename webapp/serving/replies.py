"""Following generations from asynchronous code: one Redis connection a process, however many replies are waited for.

The pump's messages are hints. A reply that says nothing for a while, or whose next token is missing, is read from its
row and its stream, so that a lost message, a restarted worker or a Valkey that was away costs time only.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from webapp.serving.database import in_database
from webapp.serving.listener import Listener
from webapp.serving.models import ENDED, Generation
from webapp.serving.reply_channel import ReplyEnd, ReplyPart, parse_parts, reply_end
from webapp.serving.streams import StreamEntry, async_client, stream_read

logger = logging.getLogger(__name__)
SILENCE_SECONDS = 2.0  # then row and stream are asked, once for all that are silent
NEW_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Text:
    """New text of a reply, with the tokens that it came from; `entries` is empty where only the row still had it."""

    text: str
    entries: Sequence[StreamEntry] = ()


Part = Text | ReplyEnd


class Follower:
    """One reply that is waited for; `take` gets its parts in order, a ReplyEnd last.

    last: the index of its last token so far. chars: the length of its text.
    """

    def __init__(self, generation_id: str, take: Callable[[Part], None], *, now: float) -> None:
        self.id = generation_id
        self.last = self.chars = 0
        self.heard_at = now
        self.broken = False  # something is missing: read row and stream as soon as possible
        self.over = False
        self._take = take

    def is_new(self, now: float) -> bool:
        """Whether its row may still be on its way into the database."""
        return self.last == 0 and now - self.heard_at < NEW_SECONDS

    def push(self, part: ReplyPart) -> None:
        """Take what the pump says; what doesn't follow on what is known is left out and marks a gap."""
        entries = [entry for entry in part.entries if entry.index > self.last]
        if entries and entries[0].index != self.last + 1:
            self.broken = True
            return
        self._add(entries)
        if part.end is None or self.over:
            return
        if part.end.output_tokens != self.last:
            self.broken = True
            return
        self._text(part.tail)
        self.end(part.end)

    def catch_up(self, row: Generation, entries: Sequence[StreamEntry]) -> None:
        """Take over what the stream and, where that has lost something, the row have. row: read before the stream."""
        self.broken = False
        fresh = [entry for entry in entries if entry.index > self.last]
        if fresh and fresh[0].index == self.last + 1:
            self._add(fresh)
        if row.output_count > self.last:
            self.last = row.output_count
            self._text(row.text[self.chars:])
        if row.state in ENDED and not self.over:
            self._text(row.text[self.chars:])
            self.end(reply_end(row, reason=row.finish_reason, error=row.error))

    def _add(self, entries: Sequence[StreamEntry]) -> None:
        if entries:
            text = "".join(entry.text for entry in entries)
            self.last = entries[-1].index
            self.chars += len(text)
            self._take(Text(text, entries))

    def _text(self, text: str) -> None:
        if text:
            self.chars += len(text)
            self._take(Text(text))

    def end(self, end: ReplyEnd) -> None:
        self.over = True
        self._take(end)


class ReplyHub(Listener):
    """Everything that one event loop waits for. `channel` goes into the rows of the generations to be followed."""

    what = "replies"
    watch_seconds = 0.5

    def __init__(self) -> None:
        super().__init__()
        self._followers: dict[str, Follower] = {}

    def client(self) -> Any:
        return async_client()

    def follow(self, generation_id: object, take: Callable[[Part], None]) -> Follower:
        """Begin to follow a generation, best before it is made; `leave` ends it."""
        follower = Follower(str(generation_id), take, now=asyncio.get_running_loop().time())
        self._followers[follower.id] = follower
        return follower

    def leave(self, follower: Follower) -> None:
        self._followers.pop(follower.id, None)

    @property
    def following(self) -> int:
        return len(self._followers)

    async def hear(self, message: str | bytes) -> None:
        try:
            parts = parse_parts(message)
        except msgspec.MsgspecError:
            logger.exception("a message about replies can't be read")
            return
        now = asyncio.get_running_loop().time()
        for part in parts:
            follower = self._followers.get(part.generation)
            if follower is not None:
                follower.heard_at = now
                follower.push(part)

    async def look_up(self) -> None:
        now = asyncio.get_running_loop().time()
        silent = [follower for follower in self._followers.values()
                  if not follower.over and (follower.broken or now - follower.heard_at > SILENCE_SECONDS)]
        if not silent:
            return
        rows = await in_database(_rows, [follower.id for follower in silent])
        for follower in silent:
            row = rows.get(follower.id)
            if row is None and not follower.is_new(now):  # deleted, with its owner
                follower.end(ReplyEnd(reason="cancelled", prompt_tokens=0, cached_tokens=0, output_tokens=0))
            elif row is not None:
                follower.catch_up(row, await stream_read(follower.id, after=follower.last))
                follower.heard_at = now


def _rows(pks: list[str]) -> dict[str, Generation]:
    found = Generation.objects.filter(pk__in=pks).only(
        "id", "state", "text", "output_count", "finish_reason", "error", "prompt_tokens", "cached_tokens")
    return {str(row.pk): row for row in found}


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ReplyHub] = weakref.WeakKeyDictionary()


async def reply_hub() -> ReplyHub:
    """The running event loop's hub, listening."""
    loop = asyncio.get_running_loop()
    hub = _hubs.get(loop)
    if hub is None:
        hub = _hubs[loop] = ReplyHub()
    await hub.begin()
    return hub
