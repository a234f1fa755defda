"""What each engine is doing right now, in a Redis hash per version that forgets engines which fell silent."""

import time

import msgspec

from inference.protocol import Stats
from webapp.serving.streams import stream_client

FRESH_SECONDS = 5


def stats_key(version_pk: int) -> str:
    return f"engines:{version_pk}"


def engine_stats_publish(*, version_pk: int, engine: str, stats: Stats) -> None:
    """Note an engine's counts. engine: a name that is its own among the version's. Raises redis.RedisError."""
    body = msgspec.json.encode({"at": time.time(), "stats": stats}).decode()
    with stream_client().pipeline(transaction=False) as pipe:
        pipe.hset(stats_key(version_pk), engine, body)
        pipe.expire(stats_key(version_pk), FRESH_SECONDS)
        pipe.execute()


def engine_stats(version_pk: int) -> list[Stats]:
    """The counts of each engine of a version that spoke in the last seconds. Raises redis.RedisError."""
    found = [msgspec.json.decode(body) for body in stream_client().hgetall(stats_key(version_pk)).values()]
    return [msgspec.convert({**row["stats"], "type": "stats"}, Stats) for row in found
            if time.time() - row["at"] < FRESH_SECONDS]
