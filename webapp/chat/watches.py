"""What one socket knows of a generation that it follows, and how it catches up from the row and the token stream.

Channel-layer messages are hints that can be lost, doubled or late. The row and the stream are the truth: whatever
doesn't follow on what was sent is left out and read from them.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from webapp.chat.frames import GenerationDeltas, GenerationSnapshot, GenerationView, Outgoing
from webapp.serving.events import Delta
from webapp.serving.streams import StreamEntry, stream_read


class Fit(enum.Enum):
    """How a delta stands to what the browser has."""

    NEXT = "next"
    SEEN = "seen"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Row:
    """A generation as the database has it: its text up to token `index`, which is the whole once ended."""

    text: str
    index: int
    ended: bool
    view: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Watch:
    """One followed generation: the browser has its text up to token `last`.

    chars: length of that text, None where the browser joined midway and only it knows. heard_at: monotonic seconds of
    the last sign of life. view: the last one sent.
    """

    generation: str
    last: int = 0
    chars: int | None = 0
    heard_at: float
    view: dict[str, Any] = field(default_factory=dict)

    def fit(self, delta: Delta) -> Fit:
        """Say whether a delta can be passed on. Text without a token (first > last) waits for the row, at the end."""
        if delta["last"] <= self.last:
            return Fit.SEEN
        return Fit.NEXT if delta["first"] == self.last + 1 else Fit.GAP

    def advance(self, *, last: int, text: str) -> None:
        """Note that the browser was sent `text`, which ends with token `last`."""
        self.last = last
        if self.chars is not None:
            self.chars += len(text)

    def view_frame(self, view: dict[str, Any], *, ref: str | None = None, always: bool = False) -> list[Outgoing]:
        """Return the frame that shows a view, with the index that the browser has; none when it shows it already."""
        view = view | {"index": self.last}
        if view == self.view and ref is None and not always:
            return []
        self.view = view
        return [GenerationView(view=view, ref=ref)]


async def catch_up(watch: Watch, row: Row, *, whole: bool = False, ref: str | None = None) -> list[Outgoing]:
    """Return the frames that bring the browser to what row and stream hold, the view last.

    row: read before this is called, so that the stream is never the older one. whole: replace what is shown.
    Raises redis.RedisError; the watch is then as it was.
    """
    entries: list[StreamEntry] = []
    if not whole and (watch.last < row.index or not row.ended):
        entries = await stream_read(watch.generation, after=watch.last)
    if row.ended:
        entries = [entry for entry in entries if entry.index <= row.index]
    if not whole and _completes(watch, row, entries):
        return _suffix(watch, entries) + watch.view_frame(row.view, ref=ref, always=row.ended)
    tail = [] if row.ended else await stream_read(watch.generation, after=row.index)
    snapshot = _snapshot(watch, row, tail, ref)
    return [snapshot, *(watch.view_frame(row.view, always=True) if row.ended else [])]


def _completes(watch: Watch, row: Row, entries: Sequence[StreamEntry]) -> bool:
    """Whether with these entries the browser has all that the row has; of an ended one, every last character."""
    last = entries[-1].index if entries else watch.last
    if not row.ended:
        return last >= row.index
    added = sum(len(entry.text) for entry in entries)
    return last == row.index and watch.chars is not None and watch.chars + added == len(row.text)


def _suffix(watch: Watch, entries: Sequence[StreamEntry]) -> list[Outgoing]:
    """Return what the stream has after the browser's last token, as one delta."""
    if not entries:
        return []
    text = "".join(entry.text for entry in entries)
    delta: Delta = {"generation": watch.generation, "first": watch.last + 1, "last": entries[-1].index, "text": text}
    watch.advance(last=delta["last"], text=text)
    return [GenerationDeltas(deltas=[delta])]


def _snapshot(watch: Watch, row: Row, tail: Sequence[StreamEntry], ref: str | None) -> Outgoing:
    """Return the row's text and the stream's tail after it, which replace whatever the browser shows."""
    text = row.text + "".join(entry.text for entry in tail)
    watch.last = tail[-1].index if tail else row.index
    watch.chars = len(text)
    watch.view = row.view | {"index": watch.last}
    return GenerationSnapshot(generation=watch.generation, index=watch.last, text=text, view=watch.view, ref=ref)
