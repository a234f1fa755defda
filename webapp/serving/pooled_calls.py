"""Asking for vectors and scores from asynchronous code: what comes at the same moment travels as one job.

While one job is on its way to the queue, which takes a few milliseconds, later requests to the same version wait and
then go together; so the queue's cost is shared by all clients, and the engine gets their texts in the same batch.
"""

import asyncio
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis
from django.conf import settings

from inference.protocol import PooledReply
from registry.loads import version_loads
from registry.models import Version
from webapp.serving.database import in_database
from webapp.serving.dispatch import STOP_POOLED, stop_channel
from webapp.serving.errors import VersionUnavailable
from webapp.serving.listener import Listener
from webapp.serving.pooled import (
    CHANNEL_END,
    PooledAnswer,
    PooledJob,
    PooledRequest,
    answer_key,
    parse_answer,
    parse_ids,
    pooled_dispatch,
    pooled_dispatch_again,
)
from webapp.serving.streams import async_bytes_client

SILENCE_SECONDS = 2.0
AGAIN_SECONDS = 15.0
MAX_JOB_REQUESTS = 64
MAX_JOB_TOKENS = 500_000


class PooledRefused(ValueError):
    """The engine did not take a request; `field` names what was wrong with it."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class PooledFailed(RuntimeError):
    """The engine took a request and could not answer it; the message says why."""


@dataclass
class _Call:
    """A request that is waited for. job: its job's id, once it is on its way."""

    request: PooledRequest
    future: "asyncio.Future[PooledAnswer]"
    began: float
    looked: float
    job: str = ""


@dataclass
class _Lane:
    """What waits to be sent to one version."""

    waiting: list[_Call] = field(default_factory=list)
    sender: "asyncio.Task[None] | None" = None


class PooledCalls(Listener):
    """All calls of one event loop."""

    what = "vectors and scores"
    ending = CHANNEL_END
    watch_seconds = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[str, _Call] = {}
        self._lanes: dict[int, _Lane] = {}

    def client(self) -> Any:
        return async_bytes_client()

    async def call(self, request: PooledRequest) -> PooledReply:
        """Wait for the engine's reply. A cancelled caller ends the request in the engine too.

        Raises PooledRefused, PooledFailed, VersionUnavailable when the version can't be loaded, TimeoutError after
        PARLEY_QUEUE_SECONDS, redis.RedisError.
        """
        await self.begin()
        loop = asyncio.get_running_loop()
        call = _Call(request, loop.create_future(), loop.time(), loop.time())
        key = request.frame.request_id
        self._calls[key] = call
        self._enqueue(call)
        try:
            async with asyncio.timeout(settings.PARLEY_QUEUE_SECONDS):
                answer = await call.future
        except asyncio.CancelledError:
            with suppress(redis.RedisError):
                await async_bytes_client().publish(stop_channel(request.version), STOP_POOLED + key)
            raise
        finally:
            self._calls.pop(key, None)
        if answer.reply is not None:
            return answer.reply
        if answer.field:
            raise PooledRefused(answer.error, answer.field)
        raise PooledFailed(answer.error)

    # On the way out

    def _enqueue(self, call: _Call) -> None:
        lane = self._lanes.setdefault(call.request.version, _Lane())
        lane.waiting.append(call)
        if lane.sender is None or lane.sender.done():
            lane.sender = asyncio.create_task(self._send(lane))

    async def _send(self, lane: _Lane) -> None:
        """Send what waits until nothing does, one job at a time."""
        while lane.waiting:
            calls = _next_job(lane.waiting)
            job = PooledJob(reply_to=self.channel, requests=[call.request for call in calls])
            try:
                job_id = await asyncio.to_thread(pooled_dispatch, job)
            except (redis.RedisError, OSError) as error:
                for call in calls:
                    if not call.future.done():
                        call.future.set_exception(redis.ConnectionError(str(error)))
                continue
            for call in calls:
                call.job = job_id

    # On the way back

    async def hear(self, message: bytes) -> None:
        await self._fetch(parse_ids(message))

    async def _fetch(self, ids: list[str]) -> None:
        """Take the answers to these that are there. Raises redis.RedisError."""
        wanted = [key for key in ids if key in self._calls]
        if not wanted:
            return
        async with async_bytes_client().pipeline(transaction=False) as pipe:
            for key in wanted:
                pipe.getdel(answer_key(key))
            bodies = await pipe.execute()
        for key, body in zip(wanted, bodies, strict=True):
            call = self._calls.get(key)
            if body is not None and call is not None and not call.future.done():
                call.future.set_result(parse_answer(body))

    async def look_up(self) -> None:
        """Look for answers whose message was lost, for versions that can't be loaded, and for jobs that nobody has."""
        now = asyncio.get_running_loop().time()
        silent = [call for call in self._calls.values() if now - call.looked > SILENCE_SECONDS]
        if not silent:
            return
        for call in silent:
            call.looked = now
        await self._fetch([call.request.frame.request_id for call in silent])
        reasons = await in_database(_load_failures, {call.request.version for call in silent})
        for call in silent:
            if (failure := reasons.get(call.request.version)) is not None and not call.future.done():
                call.future.set_exception(failure)
        jobs = {call.job: call.request.version for call in silent if call.job and now - call.began > AGAIN_SECONDS}
        for job, version in jobs.items():
            await asyncio.to_thread(pooled_dispatch_again, job, version=version)


def _next_job(waiting: list[_Call]) -> list[_Call]:
    """Take the next requests off the list: as many as one job may hold, and at least one."""
    tokens, count = 0, 0
    for call in waiting[:MAX_JOB_REQUESTS]:
        tokens += call.request.tokens
        if count and tokens > MAX_JOB_TOKENS:
            break
        count += 1
    taken, waiting[:count] = waiting[:count], []
    return taken


def _load_failures(pks: set[int]) -> dict[int, VersionUnavailable]:
    versions = {version.pk: version for version in Version.objects.select_related("model").filter(pk__in=pks)}
    return {pk: VersionUnavailable(version=str(versions[pk]), reason=load.reason)
            for pk, load in version_loads(versions.values()).items() if load.state == "failed"}


_calls: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, PooledCalls] = weakref.WeakKeyDictionary()


def pooled_calls() -> PooledCalls:
    """The running event loop's calls."""
    loop = asyncio.get_running_loop()
    calls = _calls.get(loop)
    if calls is None:
        calls = _calls[loop] = PooledCalls()
    return calls
