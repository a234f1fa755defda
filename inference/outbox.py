"""Replies' tokens on their way out of the engine: those of a few steps travel together.

Every frame wakes four processes down to the reader, and on a machine whose processors are all the engine's, each of
them takes the time from the step that runs. So a frame for each step would cost more than some steps do. A reply's
first token waits for nothing, nor does its end or the progress of its prompt.
"""

import time
from collections import defaultdict
from collections.abc import Callable

import msgspec

from inference.protocol import SequenceDelta, StepOutput

LEAST_SECONDS = 0.04
MOST_SECONDS = 0.1
SECONDS_A_REPLY = 0.005
"""A reply is told of 25 times a second, and less often when there are more than 8, but always 10 times."""


class Outbox:
    """Call `add` for what a step brought and `send_due` after each step.

    send(connection, frame) writes to a client. clock: seconds, for tests.
    """

    def __init__(self, send: Callable[[int, StepOutput], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._held: dict[str, SequenceDelta] = {}
        self._connections: dict[str, int] = {}
        self._due: set[str] = set()
        self._begun: set[str] = set()
        self._next_round = 0.0

    def add(self, connection: int, delta: SequenceDelta) -> None:
        """Take a delta; those of one request come in order, with its end as the last."""
        name, ended = delta.request_id, delta.finish_reason is not None
        if name not in self._begun or ended or not delta.token_ids:
            self._due.add(name)
        if ended:
            self._begun.discard(name)
        elif delta.token_ids:
            self._begun.add(name)
        held = self._held.get(name)
        self._held[name] = delta if held is None else joined(held, delta)
        self._connections[name] = connection

    def send_due(self) -> None:
        """Send what may not wait, and when the time has come, everything."""
        now = self._clock()
        if now >= self._next_round:
            self._next_round = now + min(max(SECONDS_A_REPLY * len(self._begun), LEAST_SECONDS), MOST_SECONDS)
            self._due.update(self._held)
        by_connection: dict[int, list[SequenceDelta]] = defaultdict(list)
        for name in [name for name in self._held if name in self._due]:  # in the order in which the steps brought them
            by_connection[self._connections.pop(name)].append(self._held.pop(name))
        self._due.clear()
        for connection, deltas in by_connection.items():
            self._send(connection, StepOutput(deltas=deltas))


def joined(earlier: SequenceDelta, later: SequenceDelta) -> SequenceDelta:
    """What two deltas of a request that follow each other say together."""
    return msgspec.structs.replace(
        later, token_ids=earlier.token_ids + later.token_ids, texts=earlier.texts + later.texts,
        logprobs=earlier.logprobs + later.logprobs, prompt_logprobs=earlier.prompt_logprobs + later.prompt_logprobs)
