"""The loop of an engine that embeds or scores: texts of all requests share batches under one token budget.

Each batch goes round the open requests, one text of each in turn, so that a request of thousands of texts does not hold
up one of a single text. A failure ends the requests of which it is, and no others.
"""

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inference.engine.pooling_model import PoolingModel
from inference.models.encoder_batch import text_batch
from inference.protocol import Embed, Embedded, PooledFrame, PooledReply, PoolingFailed, Score, Scored, Stats
from inference.spec import SpecError

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class PooledRequest:
    """One Embed or Score on its way. results: what each text gave, None until its batch has run."""

    frame: PooledFrame
    texts: Sequence[Sequence[int]]
    arrived: float
    results: list[Any] = field(default_factory=list)
    taken: int = 0
    missing: int = 0
    started: float = 0.0
    ended: bool = False

    def __post_init__(self) -> None:
        self.results = [None] * len(self.texts)
        self.missing = len(self.texts)

    def second_from(self, index: int) -> int:
        """Where a text's tokens are of the second type from on; its length when nowhere."""
        given = self.frame.second_from if isinstance(self.frame, Score) else ()
        return given[index] if given else len(self.texts[index])


_Unit = tuple[PooledRequest, int]
"""A request and the number of one of its texts."""


class PoolingLoop:
    """Takes Embed and Score frames and answers them, a batch a step of at most max_batch_tokens (or of one text)."""

    def __init__(self, model: PoolingModel, *, max_batch_tokens: int) -> None:
        self.model = model
        self._budget = max_batch_tokens
        self._requests: dict[str, PooledRequest] = {}
        self._queues: dict[int, deque[PooledRequest]] = {}
        self._steps = self._tokens = 0

    @property
    def has_work(self) -> bool:
        return bool(self._requests)

    def submit(self, frame: PooledFrame) -> None:
        """Take a request. Raises SpecError for one that can't be answered."""
        if frame.request_id in self._requests:
            raise SpecError("request_id", f"request {frame.request_id} is running already")
        self.model.check(frame)
        texts = frame.inputs if isinstance(frame, Embed) else [*frame.queries, *frame.documents]
        request = PooledRequest(frame, texts, arrived=time.monotonic())
        self._requests[frame.request_id] = request
        self._queues.setdefault(frame.priority, deque()).append(request)

    def cancel(self, request_id: str) -> PoolingFailed | None:
        """End a request; None when it has ended already."""
        request = self._requests.get(request_id)
        return None if request is None else self._fail(request, "cancelled", cancelled=True)

    def stats(self, key: int) -> Stats:
        """Return the counts of now and so far; an engine of this kind has no blocks."""
        running = sum(1 for request in self._requests.values() if request.taken)
        return Stats(request_key=key, running=running, waiting=len(self._requests) - running, free_blocks=0,
                     cached_blocks=0, held_blocks=0, total_blocks=0, steps=self._steps, prompt_tokens=self._tokens,
                     output_tokens=0, preemptions=0)

    def step(self) -> list[PooledReply | PoolingFailed]:
        """Run one batch and return the answers that it completed."""
        units = self._take()
        if not units:
            return []
        # Longest first: threads share the texts of a batch out by length.
        units.sort(key=lambda unit: -len(unit[0].texts[unit[1]]))
        texts = [request.texts[index] for request, index in units]
        batch = text_batch(texts, [request.second_from(index) for request, index in units])
        self._steps += 1
        self._tokens += int(batch.starts[-1])
        try:
            hidden = self.model.encoder.encode(batch)
        except Exception as error:  # out of memory, say: the requests of this batch end, the engine goes on
            logger.exception("A batch of %d tokens failed", batch.starts[-1])
            return [self._fail(request, f"the batch failed: {error}") for request in _distinct(units)]
        return self._settle(units, hidden, batch.starts.tolist())

    def _settle(self, units: Sequence[_Unit], hidden: Any, starts: Sequence[int]) -> list[PooledReply | PoolingFailed]:
        replies: list[PooledReply | PoolingFailed] = []
        for (request, index), first, last in zip(units, starts, starts[1:], strict=False):
            if request.ended:
                continue
            try:
                request.results[index] = self._result(request, index, hidden[first:last])
                request.missing -= 1
                if not request.missing:
                    replies.append(self._answer(request))
            except Exception as error:
                if not isinstance(error, FloatingPointError):
                    logger.exception("Request %s failed", request.frame.request_id)
                replies.append(self._fail(request, str(error)))
        return replies

    def _take(self) -> list[_Unit]:
        """Take texts for a batch: lower priorities first, round the requests of each, up to the budget."""
        units: list[_Unit] = []
        left = self._budget
        for priority in sorted(self._queues):
            queue = self._queues[priority]
            while queue:
                request = queue[0]
                size = 0 if request.ended else len(request.texts[request.taken])
                if size > left and units:
                    return units
                queue.popleft()
                if request.ended:
                    continue
                if not request.taken:
                    request.started = time.monotonic()
                units.append((request, request.taken))
                request.taken += 1
                left -= size
                if request.taken < len(request.texts):
                    queue.append(request)
            del self._queues[priority]
        return units

    def _result(self, request: PooledRequest, index: int, hidden: Any) -> Any:
        frame = request.frame
        if isinstance(frame, Embed):
            return self.model.vectors(frame, request.texts[index], hidden)
        side = self.model.side(frame, hidden)
        if not np.isfinite(side).all():
            raise FloatingPointError("the model gave values that are not finite numbers")
        return side

    def _answer(self, request: PooledRequest) -> PooledReply:
        frame, now = request.frame, time.monotonic()
        self._end(request)
        times = {"queue_s": request.started - request.arrived, "total_s": now - request.arrived}
        if isinstance(frame, Embed):
            return Embedded(request_id=frame.request_id, items=request.results, **times)
        scores = self.model.scores(frame, request.results)
        return Scored(request_id=frame.request_id, method=frame.method, scores=scores.astype("<f4").tobytes(),
                      tokens=[len(ids) for ids in frame.documents], **times)

    def _fail(self, request: PooledRequest, reason: str, *, cancelled: bool = False) -> PoolingFailed:
        self._end(request)
        return PoolingFailed(request_id=request.frame.request_id, reason=reason, cancelled=cancelled)

    def _end(self, request: PooledRequest) -> None:
        request.ended = True
        self._requests.pop(request.frame.request_id, None)


def _distinct(units: Sequence[_Unit]) -> list[PooledRequest]:
    return [request for request in dict.fromkeys(request for request, _ in units) if not request.ended]
