"""What each engine is doing right now, in a Redis hash per version that forgets engines which fell silent."""

import time

import msgspec
import redis

from inference.protocol import ExpertLoad, Stats
from webapp.serving.streams import stream_client

FRESH_SECONDS = 5
EXPERTS_EVERY = 3.0  # seconds between two readings of expert loads: thousands of numbers for a large model


def stats_key(version_pk: int) -> str:
    return f"engines:{version_pk}"


def experts_key(version_pk: int) -> str:
    return f"experts:{version_pk}"


def engine_stats_publish(*, version_pk: int, engine: str, stats: Stats) -> None:
    """Note an engine's counts, and its expert loads where they come along, in a hash that is read more seldom.

    engine: a name that is its own among the version's. Raises redis.RedisError.
    """
    with stream_client().pipeline(transaction=False) as pipe:
        if stats.experts is not None:
            _note(pipe, experts_key(version_pk), engine, stats.experts)
            stats = msgspec.structs.replace(stats, experts=None)
        _note(pipe, stats_key(version_pk), engine, stats)
        pipe.execute()


def _note(pipe: "redis.client.Pipeline", key: str, engine: str, value: Stats | ExpertLoad) -> None:
    pipe.hset(key, engine, msgspec.json.encode({"at": time.time(), "stats": value}).decode())
    pipe.expire(key, FRESH_SECONDS)


def expert_loads(version_pk: int) -> list[ExpertLoad]:
    """The expert loads of each engine of a version that spoke in the last seconds. Raises redis.RedisError."""
    found = [msgspec.json.decode(body) for body in stream_client().hgetall(experts_key(version_pk)).values()]
    return [msgspec.convert(row["stats"], ExpertLoad) for row in found if time.time() - row["at"] < FRESH_SECONDS]


def engine_stats(version_pk: int) -> list[Stats]:
    """The counts of each engine of a version that spoke in the last seconds. Raises redis.RedisError."""
    found = [msgspec.json.decode(body) for body in stream_client().hgetall(stats_key(version_pk)).values()]
    return [msgspec.convert({**row["stats"], "type": "stats"}, Stats) for row in found
            if time.time() - row["at"] < FRESH_SECONDS]
