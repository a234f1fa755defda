"""The engine alone under clients that each send their next chat request when the last has ended.

The requests are those of a serving benchmark over HTTP (essays on ten topics, greedy, prompts of some forty tokens),
and speculation is on as where an engine serves, so that what the way through the site costs can be read off: prompts
are tokenised before the clock starts, and nothing is sent anywhere.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from inference.engine.loop import EngineLoop
from inference.protocol import Submit
from inference.spec import SamplingParams
from inference.text.prompt import PromptBuilder

TOPICS = ("tides", "bread", "glaciers", "compilers", "bees", "bridges", "opera", "soil", "maps", "clocks")
REQUESTS = {1: 16, 16: 128, 64: 256}  # by the number of clients
NEW_TOKENS = (64, 256)


@dataclass
class _Reply:
    """One request in flight. Times in seconds of time.perf_counter."""

    sent: float
    first: float = 0.0
    last: float = 0.0
    tokens: int = 0


@dataclass
class _Run:
    loop: EngineLoop
    waiting: list[list[int]]
    new_tokens: int
    open: dict[str, _Reply] = field(default_factory=dict)
    ended: list[_Reply] = field(default_factory=list)

    def send(self) -> None:
        """Send the next request, if there is one."""
        if self.waiting:
            number = str(len(self.open) + len(self.ended))
            self.open[number] = _Reply(time.perf_counter())
            params = SamplingParams(max_tokens=self.new_tokens, temperature=0.0)
            self.loop.submit(Submit(request_id=number, prompt_ids=self.waiting.pop(0), params=params))

    def step(self) -> None:
        for delta in self.loop.step().deltas:
            reply, now = self.open[delta.request_id], time.perf_counter()
            if delta.token_ids:
                reply.first, reply.last = reply.first or now, now
                reply.tokens += len(delta.token_ids)
            if delta.finish_reason:
                self.ended.append(self.open.pop(delta.request_id))
                self.send()


def measure(make_loop: Callable[[bool], EngineLoop], builder: PromptBuilder) -> Iterator[dict[str, Any]]:
    """Yield a line for each length of replies and number of clients: tokens/s, and the medians of time to first token
    and time per token.

    make_loop(speculation) gives a loop with an empty cache.
    """
    for new_tokens in NEW_TOKENS:
        for clients, requests in REQUESTS.items():
            _all(_Run(make_loop(True), _prompts(builder, 1), new_tokens), 1)  # warm
            began = time.perf_counter()
            ended = _all(_Run(make_loop(True), _prompts(builder, requests), new_tokens), clients)
            wall = time.perf_counter() - began
            yield {"clients": clients, "requests": len(ended), "max_tokens": new_tokens,
                   "tokens_per_s": round(sum(reply.tokens for reply in ended) / wall, 1),
                   "ttft_ms": round(1e3 * median(reply.first - reply.sent for reply in ended), 1),
                   "tpot_ms": round(1e3 * median((reply.last - reply.first) / max(reply.tokens - 1, 1)
                                                 for reply in ended), 1)}


def _prompts(builder: PromptBuilder, count: int) -> list[list[int]]:
    texts = [f"Write a long essay about {TOPICS[number % len(TOPICS)]}, part {number}." for number in range(count)]
    return [builder.chat_ids([{"role": "user", "content": text}]) for text in texts]


def _all(run: _Run, clients: int) -> list[_Reply]:
    for _ in range(clients):
        run.send()
    while run.loop.has_work:
        run.step()
    return run.ended
