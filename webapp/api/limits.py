"""Requests and tokens a minute: a bucket for each limit in Redis, which fills evenly and is shared by all processes.

A request takes one request and its prompt's tokens before it begins; the reply's tokens are taken when it ends, and may
put the bucket in debt, which later requests wait for. So a limit holds on average, and no reply is cut in the middle.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.accounts.selectors import Limit
from webapp.api.errors import ApiError
from webapp.serving.streams import async_client

MINUTE = 60.0

# KEYS: buckets. ARGV: for each capacity and cost. Takes from all or from none. A cost above the capacity needs a full
# bucket. Returns for each what is left, and the thousandths of seconds until there would be enough.
_TAKE = """
local time = redis.call('TIME')
local now, levels, waits, ok = tonumber(time[1]) + tonumber(time[2]) / 1e6, {}, {}, true
for i, key in ipairs(KEYS) do
  local capacity, cost = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local saved = redis.call('HMGET', key, 'level', 'at')
  local level, at = tonumber(saved[1] or capacity), tonumber(saved[2] or now)
  level = math.min(capacity, level + math.max(0, now - at) * capacity / 60)
  local short = math.min(cost, capacity) - level
  levels[i], waits[i] = level, math.max(0, short) * 60 / capacity
  if short > 0 then ok = false end
end
local result = {ok and 1 or 0}
for i, key in ipairs(KEYS) do
  local capacity, cost = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local level = ok and levels[i] - cost or levels[i]
  redis.call('HSET', key, 'level', tostring(level), 'at', tostring(now))
  redis.call('EXPIRE', key, 3600)
  result[2 * i], result[2 * i + 1] = math.floor(level), math.ceil(waits[i] * 1000)
end
return result
"""

# KEYS: buckets. ARGV: for each capacity, then the cost. Takes without asking.
_SPEND = """
local time = redis.call('TIME')
local now, cost = tonumber(time[1]) + tonumber(time[2]) / 1e6, tonumber(ARGV[#KEYS + 1])
for i, key in ipairs(KEYS) do
  local capacity = tonumber(ARGV[i])
  local saved = redis.call('HMGET', key, 'level', 'at')
  local level, at = tonumber(saved[1] or capacity), tonumber(saved[2] or now)
  level = math.min(capacity, level + math.max(0, now - at) * capacity / 60) - cost
  redis.call('HSET', key, 'level', tostring(level), 'at', tostring(now))
  redis.call('EXPIRE', key, 3600)
end
return 1
"""


@dataclass(frozen=True, slots=True)
class _Bucket:
    """One limit: of requests or of tokens, of one subject."""

    what: str
    subject: str
    capacity: int

    @property
    def key(self) -> str:
        return f"limit:{self.what}:{self.subject}"


def _buckets(limits: Sequence[Limit], what: str) -> list[_Bucket]:
    return [_Bucket(what, limit.subject, number) for limit in limits
            if (number := getattr(limit, f"{what}_per_minute"))]


async def limits_take(limits: Sequence[Limit], *, tokens: int) -> dict[str, str]:
    """Take one request and so many tokens from everything that applies; returns the headers that say what is left.

    Raises ApiError: 429 with `retry-after`, and then nothing was taken; 403 where a limit is zero.
    """
    for limit in limits:
        if 0 in (limit.requests_per_minute, limit.tokens_per_minute):
            raise ApiError(403, "Your limit for this API is zero; ask the administrator of this site.",
                           code="quota_is_zero", kind="permission_error")
    buckets = _buckets(limits, "requests") + _buckets(limits, "tokens")
    if not buckets:
        return {}
    costs = [1 if bucket.what == "requests" else tokens for bucket in buckets]
    args = [number for bucket, cost in zip(buckets, costs, strict=True) for number in (bucket.capacity, cost)]
    ok, *found = await async_client().eval(_TAKE, len(buckets), *[bucket.key for bucket in buckets], *args)
    left = [(bucket, found[2 * i], found[2 * i + 1] / 1000) for i, bucket in enumerate(buckets)]
    headers = _headers(left)
    if ok:
        return headers
    worst, _, wait = max(left, key=lambda row: row[2])
    owner = "You" if worst.subject.startswith("user:") else "Your group"
    raise ApiError(429, f"{owner} may use {worst.capacity:,} {worst.what} a minute. Try again in {math.ceil(wait)} s.",
                   code="rate_limit_exceeded", kind="rate_limit_error",
                   headers=headers | {"retry-after": str(max(1, math.ceil(wait)))})


async def limits_spend(limits: Sequence[Limit], *, tokens: int) -> None:
    """Take a reply's tokens, which nobody knew beforehand."""
    buckets = _buckets(limits, "tokens")
    if buckets and tokens > 0:
        await async_client().eval(_SPEND, len(buckets), *[bucket.key for bucket in buckets],
                                  *[bucket.capacity for bucket in buckets], tokens)


def _headers(left: Sequence[tuple[_Bucket, int, float]]) -> dict[str, str]:
    """OpenAI's headers, of the tightest limit of each kind. `reset` is how long until the bucket is full again."""
    headers = {}
    for what in ("requests", "tokens"):
        rows = [(rest, bucket.capacity) for bucket, rest, _ in left if bucket.what == what]
        if rows:
            rest, capacity = min(rows)
            headers[f"x-ratelimit-limit-{what}"] = str(capacity)
            headers[f"x-ratelimit-remaining-{what}"] = str(max(0, rest))
            headers[f"x-ratelimit-reset-{what}"] = f"{(capacity - rest) * MINUTE / capacity:.3f}s"
    return headers
