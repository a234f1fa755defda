"""The pump: one thread an engine that carries every step's tokens into streams, sockets and rows, in that order.

It alone touches the tracks. What it can't write, because Valkey or the database is away, it keeps in order and writes
later; the engine goes on meanwhile, and max_tokens bounds what can pile up.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import redis
from django.db import Error as DatabaseFailure
from django.db import connections, transaction

from inference.protocol import Rejected, SequenceDelta, StepOutput
from webapp.serving.claims import generation_checkpoint, generation_finish, generation_release, stops_asked
from webapp.serving.events import StepEvent, events_send, step_event
from webapp.serving.metrics import generations_observe
from webapp.serving.reply_channel import ReplyPart, replies_publish
from webapp.serving.streams import streams_publish
from webapp.serving.track import OutOfOrder, Track

logger = logging.getLogger(__name__)
CHECKPOINT_SECONDS = 1.0
STOP_POLL_SECONDS = 0.5  # the flag in the row; the message is faster, when it arrives
RETRY_SECONDS = 0.3
DRAIN_SECONDS = 4.0


@dataclass(frozen=True)
class StopAsked:
    pk: str


@dataclass(frozen=True)
class Drain:
    """Let go of everything and end. interrupted_by: why, when it isn't an orderly shutdown."""

    interrupted_by: str = ""


Item = Track | StepOutput | Rejected | StopAsked | Drain


class Pump:
    """`released` holds, once it has ended, (generation id, version id) of what it put back in the queue."""

    def __init__(self, *, cancel: Callable[[str], None]) -> None:
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
        self.released: list[tuple[str, int]] = []
        self._cancel = cancel
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._closed = False
        self._drain: Drain | None = None
        self._tracks: dict[str, Track] = {}
        self._checkpoint_at = self._poll_at = self._publish_at = self._save_at = 0.0

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for its end; returns at once when it never began."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def put(self, item: StepOutput | Rejected | StopAsked) -> None:
        """Hand over what the engine or a person said; never blocks."""
        self._items.put(item)

    def admit(self, track: Track) -> bool:
        """Take a claimed generation, before it is submitted; false when the pump is closing."""
        with self._door:
            if not self._closed:
                self._items.put(track)
            return not self._closed

    def drain(self, *, interrupted_by: str = "") -> None:
        """Release every generation at once, with all its tokens, and end the thread. Safe in a signal handler."""
        self._closed = True
        self._items.put(Drain(interrupted_by))

    def _run(self) -> None:
        while self._drain is None:
            try:
                self._turn()
            except Exception:
                logger.exception("the pump went on after an error")
                time.sleep(RETRY_SECONDS)
        with self._door:  # whoever was being admitted is in the queue now, and nobody comes after
            self._take_rest()
        self._release_all(self._drain)
        connections.close_all()

    def _turn(self) -> None:
        self._take()
        self._publish()
        self._save()
        self._forget_ended()

    # What came in

    def _take(self) -> None:
        """Wait for the next item or the next due write, then take all that is there."""
        with suppress(queue.Empty):
            self._apply(self._items.get(timeout=self._wait_seconds()))
        self._take_rest()

    def _take_rest(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._apply(self._items.get_nowait())

    def _wait_seconds(self) -> float:
        if not self._tracks:
            return 10.0
        tracks = self._tracks.values()
        unsaved = any(track.ended and not track.saved for track in tracks)
        due = max(self._save_at, 0.0 if unsaved else min(self._checkpoint_at, self._poll_at))
        if any(track.unsent for track in tracks):
            due = min(due, self._publish_at)
        return max(due - time.monotonic(), 0.001)

    def _apply(self, item: Item) -> None:
        if isinstance(item, StepOutput):
            for delta in item.deltas:
                track = self._tracks.get(delta.request_id)
                if track is not None and track.ended is None:
                    self._apply_delta(track, delta)
        elif isinstance(item, Track):
            self._tracks[item.request_id] = item
        elif isinstance(item, StopAsked):
            self._stop({item.pk})
        elif isinstance(item, Rejected):
            if (track := self._tracks.get(item.request_id)) is not None:
                track.fail(item.reason)
        else:
            self._drain = self._drain or item

    def _apply_delta(self, track: Track, delta: SequenceDelta) -> None:
        try:
            track.apply(delta)
        except OutOfOrder as error:
            logger.error("generation %s: %s", track.pk, error)
            self._cancel(track.request_id)
            track.fail(f"The engine lost count: {error}")

    def _stop(self, pks: set[str]) -> None:
        for track in self._tracks.values():
            if track.pk in pks and track.ended is None:
                self._cancel(track.request_id)

    # Streams and sockets

    def _publish(self) -> None:
        """Append to the streams, then tell the sockets: one command and one message a user for all of a step."""
        if time.monotonic() < self._publish_at:
            return
        pending = [track for track in self._tracks.values() if track.unsent]
        try:
            fenced = streams_publish([track.stream_write() for track in pending])
        except redis.RedisError as error:
            logger.warning("streams wait for Valkey: %s", error)
            self._publish_at = time.monotonic() + RETRY_SECONDS
            return
        for track in pending:
            if track.pk in fenced:
                self._lose(track)
        self._reply()
        self._send()

    def _reply(self) -> None:
        """Tell whoever waits for a program's request: one message a waiting process."""
        by_channel: dict[str, list[ReplyPart]] = {}
        for track in self._tracks.values():
            if (channel := track.generation.reply_to) and (part := track.take_reply()) is not None:
                by_channel.setdefault(channel, []).append(part)
        replies_publish(by_channel)

    def _send(self) -> None:
        by_user: dict[object, StepEvent] = {}
        for track in self._tracks.values():
            if track.generation.reply_to:
                continue
            delta, view = track.take_delta(), track.take_view()
            if delta is None and view is None:
                continue
            event = by_user.setdefault(track.generation.owner_id, step_event(deltas=[], views=[]))
            event["deltas"] += [delta] if delta else []
            event["views"] += [view] if view else []
        if by_user:
            events_send(by_user.items())

    def _lose(self, track: Track) -> None:
        """Another attempt has it: end it here, write nothing more."""
        logger.info("generation %s is another attempt's now", track.pk)
        self._cancel(track.request_id)
        self._tracks.pop(track.request_id, None)
        track.over.set()

    # Rows

    def _save(self) -> None:
        """Write ends at once, all others about every second, and look for stop flags in between."""
        now = time.monotonic()
        if now < self._save_at:
            return
        due = [track for track in self._tracks.values() if track.ended and not track.saved]
        if now >= self._checkpoint_at:
            due += [track for track in self._tracks.values() if not track.ended]
            self._checkpoint_at = now + CHECKPOINT_SECONDS
        try:
            self._write(due)
            if now >= self._poll_at and self._tracks:
                self._poll_at = now + STOP_POLL_SECONDS
                self._stop(stops_asked(track.generation.pk for track in self._tracks.values()))
        except DatabaseFailure as error:
            logger.warning("rows wait for the database: %s", error)
            connections.close_all()
            self._save_at, self._checkpoint_at = now + RETRY_SECONDS, 0.0

    def _write(self, due: list[Track]) -> None:
        """Write all in one transaction. Raises django.db.Error, and then nothing is written."""
        if not due:
            return
        with transaction.atomic():
            held = [self._write_one(track) for track in due]
        for track, ok in zip(due, held, strict=True):
            if not ok:
                self._lose(track)
            elif track.ended:
                track.saved = True
                track.over.set()
        if ended := [track.generation for track in due if track.saved]:
            generations_observe(ended)

    def _write_one(self, track: Track) -> bool:
        if track.ended is None:
            return generation_checkpoint(track.generation)
        return generation_finish(track.generation, state=track.final_state, finish_reason=track.ended,
                                 error=track.error)

    def _forget_ended(self) -> None:
        """Send the last view of what is saved and sent, after all of its deltas."""
        for track in [track for track in self._tracks.values() if track.saved and track.closed]:
            if not track.generation.reply_to:
                events_send([(track.generation.owner_id, step_event(deltas=[], views=[track.view()]))])
            del self._tracks[track.request_id]

    # The end

    def _release_all(self, drain: Drain) -> None:
        """Put everything back in the queue; what the database doesn't take in time, the sweeper does."""
        for track in self._tracks.values():
            if track.ended is None and not drain.interrupted_by:
                self._cancel(track.request_id)
        deadline = time.monotonic() + DRAIN_SECONDS
        while (left := [track for track in self._tracks.values() if not track.saved]) and time.monotonic() < deadline:
            try:
                self._release(left, drain)
            except DatabaseFailure as error:
                logger.warning("releasing waits for the database: %s", error)
                connections.close_all()
                time.sleep(RETRY_SECONDS)
        for track in self._tracks.values():
            track.over.set()
        self._publish_at = 0.0
        self._publish()

    def _release(self, tracks: list[Track], drain: Drain) -> None:
        with transaction.atomic():
            for track in tracks:
                if track.ended is not None:
                    self._write_one(track)
                else:
                    generation_release(track.generation, interrupted_by=drain.interrupted_by)
        for track in tracks:
            track.saved = True
            if not track.generation.ended:
                self.released.append((track.pk, track.generation.version_id))
