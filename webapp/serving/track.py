"""One running generation inside the pump: what the engine said of it, and what of that is still to be sent."""

import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from inference.protocol import FinishReason, SequenceDelta, TokenLogprobs
from webapp.serving.events import Delta
from webapp.serving.models import Generation, GenerationState, Phase
from webapp.serving.reply_channel import ReplyEnd, ReplyPart, reply_end
from webapp.serving.selectors import generation_view
from webapp.serving.streams import StreamEntry, StreamWrite

VIEW_SECONDS = 1.0  # how often times and token counts are shown while nothing else changes


class OutOfOrder(Exception):
    """The engine reported a token whose index is not the next one."""


class Track:
    """The pump's thread alone touches it after it was handed over; `over` tells the waiting task that it ended.

    generation: the claimed row, kept up to date in memory; checkpoints write it. pending: entries that are not in the
    stream yet. ended: why the engine ended it. saved: the row says so too. closed: so does the stream.
    """

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.request_id = f"{generation.pk}:{generation.attempt}"
        self.pending: list[StreamEntry] = []
        self.tail = ""
        self.ended: FinishReason | None = None
        self.error = ""
        self.saved = self.closed = False
        self.over = threading.Event()
        self._claimed = time.monotonic()
        self._shown: tuple[Any, ...] = ()
        self._shown_at = 0.0

    @property
    def pk(self) -> str:
        return str(self.generation.pk)

    def now(self) -> datetime:
        """The time by the database's clock, which claimed_at was read from."""
        claimed = self.generation.claimed_at
        assert claimed is not None
        return claimed + timedelta(seconds=time.monotonic() - self._claimed)

    def apply(self, delta: SequenceDelta) -> None:
        """Take over what one step brought. Raises OutOfOrder."""
        row = self.generation
        if delta.index != row.output_count + len(delta.token_ids):
            raise OutOfOrder(f"token {delta.index} came after token {row.output_count}")
        if delta.token_ids and row.first_token_at is None:
            row.first_token_at = self.now()
        scores: Sequence[TokenLogprobs | None] = delta.logprobs or [None] * len(delta.token_ids)
        for offset, (token_id, text, score) in enumerate(zip(delta.token_ids, delta.texts, scores, strict=True), 1):
            last = row.output_count + offset == delta.index
            reason = delta.finish_reason or "" if last else ""
            logprobs = msgspec.json.encode(score).decode() if score is not None else ""
            self.pending.append(StreamEntry(row.output_count + offset, token_id, text, reason, logprobs))
        row.output_ids.extend(delta.token_ids)
        row.output_count = delta.index
        row.text += "".join(delta.texts)
        row.phase = Phase(delta.phase)
        row.prefill_done = row.prompt_tokens if delta.phase == "decoding" else delta.prefill_done or row.prefill_done
        if delta.finish_reason is not None:
            self._end(delta)

    def _end(self, delta: SequenceDelta) -> None:
        row = self.generation
        row.text += delta.tail
        self.tail, self.ended, self.error = delta.tail, delta.finish_reason, delta.error
        row.ended_at = self.now()
        if delta.timings is not None:
            timings = delta.timings
            row.cached_tokens = timings.cached_tokens
            row.timings = {"queue_s": timings.queue_s, "prefill_s": timings.prefill_s, "decode_s": timings.decode_s}

    def fail(self, reason: str) -> None:
        """End it as failed, with a reason that the engine gave outside a step."""
        self.ended, self.error, self.generation.ended_at = "failed", reason, self.now()

    @property
    def final_state(self) -> GenerationState:
        assert self.ended is not None
        return {"cancelled": GenerationState.STOPPED, "failed": GenerationState.FAILED}.get(
            self.ended, GenerationState.DONE)

    @property
    def unsent(self) -> bool:
        """The stream lacks entries, or doesn't know yet that this was the last."""
        return bool(self.pending) or (self.ended is not None and not self.closed)

    def stream_write(self) -> StreamWrite:
        return StreamWrite(generation_id=self.pk, attempt=self.generation.attempt, entries=tuple(self.pending),
                           ended=self.ended is not None)

    def take_delta(self) -> Delta | None:
        """What was pending, as one delta for the sockets, once the stream has it."""
        self.closed = self.ended is not None
        text = "".join(entry.text for entry in self.pending) + self.tail
        count = self.generation.output_count
        first = self.pending[0].index if self.pending else count + 1
        changed = bool(self.pending or self.tail)
        self.pending, self.tail = [], ""
        return {"generation": self.pk, "first": first, "last": count, "text": text} if changed else None

    def take_reply(self) -> ReplyPart | None:
        """What was pending, whole, for the one who waits for it; None when there is nothing new."""
        entries, first_end = self.pending, self.ended is not None and not self.closed
        if not entries and not first_end:
            return None
        part = ReplyPart(generation=self.pk, entries=entries, tail=self.tail, end=self.reply_end())
        self.pending, self.tail, self.closed = [], "", self.ended is not None
        return part

    def reply_end(self) -> ReplyEnd | None:
        return reply_end(self.generation, reason=self.ended, error=self.error) if self.ended is not None else None

    def take_view(self) -> dict[str, Any] | None:
        """Its view, when the phase or the prefill went on, or a second has passed; none once it ended."""
        if self.ended is not None:
            return None
        row, now = self.generation, time.monotonic()
        shown = (row.phase, row.prefill_done)
        if shown == self._shown and now - self._shown_at < VIEW_SECONDS:
            return None
        self._shown, self._shown_at = shown, now
        return self.view()

    def view(self) -> dict[str, Any]:
        return generation_view(self.generation, now=self.now()).to_dict()
