"""The Redis stream of a generation: the only path of its tokens, entry id = token index, fenced by attempt."""

import asyncio
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

LIVE_SECONDS = 24 * 3600  # a stream outlives any reply
ENDED_SECONDS = 600  # the row holds the whole by then; this is for readers who are catching up

# Several streams in one call, so that a step costs one command. KEYS: stream, fence, stream, fence, …
# ARGV: for each stream attempt, seconds to live, number of entries, then per entry index, token id, text, end, scores.
# A fence above the attempt refuses all of its entries; an entry at or below the last one is a double, left out quietly:
# a writer that lost its connection sends again what may have arrived. Returns 0 or 1 for each stream: refused, taken.
_PUBLISH = """
local taken, a = {}, 1
for k = 1, #KEYS, 2 do
  local attempt, ttl, count = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  local fence = tonumber(redis.call('GET', KEYS[k + 1]) or '-1')
  if fence > attempt then
    taken[#taken + 1] = 0
  else
    for i = a, a + 5 * (count - 1), 5 do
      local entry = {'t', ARGV[i + 1], 's', ARGV[i + 2], 'a', attempt, 'f', ARGV[i + 3]}
      if ARGV[i + 4] ~= '' then
        entry[9], entry[10] = 'l', ARGV[i + 4]
      end
      local added = redis.pcall('XADD', KEYS[k], ARGV[i] .. '-0', unpack(entry))
      if type(added) == 'table' and added.err and not string.find(added.err, 'equal or smaller', 1, true) then
        return added
      end
    end
    if fence < attempt then redis.call('SET', KEYS[k + 1], attempt) end
    redis.call('EXPIRE', KEYS[k], ttl)
    redis.call('EXPIRE', KEYS[k + 1], ttl)
    taken[#taken + 1] = 1
  end
  a = a + 5 * count
end
return taken
"""

_FENCE = """
local fence = tonumber(redis.call('GET', KEYS[1]) or '-1')
if fence < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2]) end
return 1
"""


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One output token: its index (from 1), its id, the text that it added, and why the reply ended with it, if so.

    logprobs: inference.protocol.TokenLogprobs as JSON, where the request asked for them. They live in the stream alone.
    """

    index: int
    token_id: int
    text: str
    finish_reason: str = ""
    logprobs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWrite:
    """New entries of one generation under one attempt; `ended` lets the stream expire soon."""

    generation_id: str
    attempt: int
    entries: Sequence[StreamEntry] = field(default_factory=tuple)
    ended: bool = False


def stream_key(generation_id: object) -> str:
    return f"generation:{generation_id}"


def fence_key(generation_id: object) -> str:
    return f"generation:{generation_id}:fence"


@cache
def stream_client() -> redis.Redis:
    """The process's thread-safe client. Timeouts are short: whoever calls retries later and has other work to do."""
    return redis.Redis.from_url(settings.REDIS_URL, decode_responses=True, socket_timeout=2, socket_connect_timeout=1,
                                health_check_interval=15, retry=Retry(NoBackoff(), 1))


@cache
def bytes_client() -> redis.Redis:
    """The same for values that are no text."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5, socket_connect_timeout=1,
                                health_check_interval=15, retry=Retry(NoBackoff(), 1))


_async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis] = weakref.WeakKeyDictionary()


def async_client() -> redis.asyncio.Redis:
    """One client for each event loop: a connection belongs to the loop that opened it."""
    loop = asyncio.get_running_loop()
    client = _async_clients.get(loop)
    if client is None:
        client = _async_clients[loop] = _new_async_client(decode_responses=True)
    return client


_async_bytes_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis] = (
    weakref.WeakKeyDictionary())


def async_bytes_client() -> redis.asyncio.Redis:
    """The same for values that are no text."""
    loop = asyncio.get_running_loop()
    client = _async_bytes_clients.get(loop)
    if client is None:
        client = _async_bytes_clients[loop] = _new_async_client(decode_responses=False)
    return client


def _new_async_client(*, decode_responses: bool) -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(settings.REDIS_URL, decode_responses=decode_responses, socket_timeout=2,
                                        socket_connect_timeout=1, health_check_interval=15)


def streams_publish(writes: Sequence[StreamWrite]) -> set[str]:
    """Append entries to their streams, all in one command. Returns the ids of those that a newer attempt fenced off.

    Safe to repeat: entries that are already there are left out. Raises redis.RedisError; then nothing is certain, and
    the caller repeats the same writes.
    """
    if not writes:
        return set()
    keys: list[str] = []
    args: list[str | int] = []
    for write in writes:
        keys += (stream_key(write.generation_id), fence_key(write.generation_id))
        args += (write.attempt, ENDED_SECONDS if write.ended else LIVE_SECONDS, len(write.entries))
        for entry in write.entries:
            args += (entry.index, entry.token_id, entry.text, entry.finish_reason, entry.logprobs)
    taken = stream_client().register_script(_PUBLISH)(keys=keys, args=args)
    return {write.generation_id for write, ok in zip(writes, taken, strict=True) if not ok}


def stream_fence(generation_id: object, *, attempt: int) -> None:
    """From now on only this attempt and later ones may write. Raises redis.RedisError."""
    stream_client().eval(_FENCE, 1, fence_key(generation_id), attempt, LIVE_SECONDS)


def stream_tail(generation_id: object, *, after: int) -> list[StreamEntry]:
    """The entries with the indexes after + 1, after + 2, … up to the first gap. Raises redis.RedisError."""
    found = stream_client().xrange(stream_key(generation_id), min=f"{after + 1}-0")
    return _unbroken(found, after=after)


async def stream_read(generation_id: object, *, after: int) -> list[StreamEntry]:
    """The same for a consumer: the entries from after + 1 on, without a gap; none when the next one isn't there.

    A gap means that the stream lost entries which the row has. Raises redis.RedisError.
    """
    found = await async_client().xrange(stream_key(generation_id), min=f"{after + 1}-0")
    return _unbroken(found, after=after)


def _unbroken(found: Any, *, after: int) -> list[StreamEntry]:
    entries: list[StreamEntry] = []
    for entry_id, fields in found:
        index = int(entry_id.partition("-")[0])
        if index != after + len(entries) + 1:
            break
        entries.append(StreamEntry(index, int(fields["t"]), fields["s"], fields.get("f", ""), fields.get("l", "")))
    return entries
