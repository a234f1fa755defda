"""The replies of one request while they are written: queued together, followed together, stopped when nobody waits."""

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any
from uuid import uuid4

import redis
from django.conf import settings

from webapp.api.auth import Caller
from webapp.api.errors import failed, overloaded, refused
from webapp.api.limits import limits_spend, limits_take
from webapp.api.plans import ReplyPlan
from webapp.config.request_ids import request_id
from webapp.serving.database import database_later, in_database
from webapp.serving.errors import GenerationRefused
from webapp.serving.replies import Follower, Part, ReplyHub, reply_hub
from webapp.serving.reply_channel import ReplyEnd
from webapp.serving.services import Origin, generations_abandon, generations_create

KEEP_ALIVE_SECONDS = 5.0
FIRST_SECONDS = 1.0  # so long a stream waits with its headers, for an early failure to have a status of its own

_background: set[asyncio.Task[Any]] = set()


def in_background(work: Coroutine[Any, Any, Any]) -> None:
    """Run something that nobody waits for; the event loop alone would forget it."""
    task = asyncio.get_running_loop().create_task(work)
    _background.add(task)
    task.add_done_callback(_forget)


def _forget(task: "asyncio.Task[Any]") -> None:
    _background.discard(task)
    if not task.cancelled():
        task.exception()  # it was nobody's business


class Run:
    """Begin it with `begin`, take parts with `next`, and always `close` it.

    headers: what the limits leave. created: seconds since the epoch.
    """

    def __init__(self, plan: ReplyPlan, caller: Caller, *, endpoint: str) -> None:
        self.plan = plan
        self.headers: dict[str, str] = {}
        self.created = int(time.time())
        self.pks = [uuid4() for _ in range(len(plan.prompts) * plan.choices)]
        self.ends: dict[int, ReplyEnd] = {}
        self._caller = caller
        self._endpoint = endpoint
        self._parts: asyncio.Queue[tuple[int, Part]] = asyncio.Queue()
        self._followers: list[Follower] = []
        self._hub: ReplyHub | None = None
        self._creating: asyncio.Task[Any] | None = None
        self._deadline = time.monotonic() + settings.PARLEY_QUEUE_SECONDS
        self._heard = False
        self._first: tuple[int, Part] | None = None
        self._left = False

    @property
    def id(self) -> str:
        return self.pks[0].hex

    @property
    def over(self) -> bool:
        return len(self.ends) == len(self.pks)

    async def begin(self) -> None:
        """Take from the limits and queue everything. Raises ApiError."""
        try:
            self.headers = await limits_take(self._caller.limits, tokens=self.plan.prompt_tokens)
            self._hub = await reply_hub()
        except redis.RedisError:
            raise overloaded("The queue can't be reached right now.") from None
        for index, pk in enumerate(self.pks):
            self._followers.append(self._hub.follow(pk, partial(self._take, index)))
        origin = Origin(api_key=self._caller.key, endpoint=self._endpoint, request_id=request_id(),
                        reply_to=self._hub.channel, pks=self.pks)
        self._creating = asyncio.ensure_future(in_database(self._create, origin))
        try:
            await asyncio.shield(self._creating)
        except GenerationRefused as error:
            raise refused(error, prompt="messages" if self.plan.form else "prompt") from error

    def _create(self, origin: Origin) -> None:
        """Runs on a database thread, maybe after its turn came late."""
        if self._left:
            raise ConnectionAbortedError("the client left before its request was queued")
        generations_create(owner=self._caller.user, version=self.plan.named.version, adapter=self.plan.named.adapter,
                           prompts=self.plan.prompts, sampling=self.plan.sampling, n=self.plan.choices, origin=origin)

    async def wait_first(self) -> None:
        """Wait a moment for the first part. Raises ApiError when that is a failure."""
        self._first = await self._get(FIRST_SECONDS)
        if self._first is not None:
            self._check(*self._first)

    async def next(self) -> tuple[int, Part] | None:
        """The next part with the number of its reply; None when nothing came for some seconds.

        Raises ApiError: a reply failed, or nothing began within PARLEY_QUEUE_SECONDS.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        found = await self._get(KEEP_ALIVE_SECONDS)
        if found is not None:
            self._check(*found)
        elif not self._heard and time.monotonic() > self._deadline:
            raise overloaded(f"No answer began within {settings.PARLEY_QUEUE_SECONDS} s. Try again later.",
                             retry_after=30)
        return found

    async def _get(self, seconds: float) -> tuple[int, Part] | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._parts.get()
        except TimeoutError:
            return None

    def _take(self, index: int, part: Part) -> None:
        self._parts.put_nowait((index, part))

    def _check(self, index: int, part: Part) -> None:
        self._heard = True
        if isinstance(part, ReplyEnd):
            self.ends[index] = part
            if part.reason == "failed":
                raise failed(part.error or "The reply failed.")
            if part.reason == "cancelled":
                raise failed("The reply was stopped before its end.", code="stopped")

    def close(self) -> None:
        """Stop what still runs, and let go of everything. May be called again."""
        self._left = True
        if self._hub is None:
            return
        for follower in self._followers:
            self._hub.leave(follower)
        self._hub = None
        if self._creating is None:
            return
        if not self.over:
            self._creating.add_done_callback(self._abandon)
        tokens = sum(follower.last for follower in self._followers)
        if tokens and self._caller.limits:
            in_background(limits_spend(self._caller.limits, tokens=tokens))

    def _abandon(self, creating: "asyncio.Task[Any]") -> None:
        if not creating.cancelled() and creating.exception() is None:
            database_later(generations_abandon, pks=self.pks, owner=self._caller.user)

    def usage(self) -> dict[str, Any]:
        """OpenAI's count of tokens: each prompt once, all replies."""
        output = sum(follower.last for follower in self._followers)
        prompt = self.plan.prompt_tokens
        firsts = [end for index, end in self.ends.items() if index % self.plan.choices == 0]
        return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
                "prompt_tokens_details": {"cached_tokens": sum(end.cached_tokens for end in firsts)}}
