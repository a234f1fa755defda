"""What each engine is doing right now, in a Redis hash per version that forgets engines which fell silent."""

import time

import msgspec

from inference.protocol import ExpertLoad, Stats
from webapp.serving.streams import stream_client

FRESH_SECONDS = 5
SILENT_SECONDS = FRESH_SECONDS - 1  # reports come every second, so what is dropped at the next is not older than fresh
EXPERTS_EVERY = 3.0  # seconds between two readings of expert loads: thousands of numbers for a large model


def stats_key(version_pk: int) -> str:
    return f"engines:{version_pk}"


def experts_key(version_pk: int) -> str:
    return f"experts:{version_pk}"


def engine_stats_publish(*, version_pk: int, engine: str, stats: Stats) -> None:
    """Note an engine's counts, and its expert loads where they come along, in a hash that is read more seldom.

    engine: a name that is its own among the version's. Engines that fell silent are dropped. Raises redis.RedisError.
    """
    noted: list[tuple[str, Stats | ExpertLoad]] = [
        (stats_key(version_pk), msgspec.structs.replace(stats, experts=None))]
    if stats.experts is not None:
        noted.append((experts_key(version_pk), stats.experts))
    client, now = stream_client(), time.time()
    for key, value in noted:
        with client.pipeline(transaction=False) as pipe:
            pipe.hset(key, engine, msgspec.json.encode({"at": now, "stats": value}).decode())
            pipe.expire(key, FRESH_SECONDS)
            pipe.hgetall(key)
            *_, rows = pipe.execute()
        if silent := [name for name, body in rows.items() if now - msgspec.json.decode(body)["at"] > SILENT_SECONDS]:
            client.hdel(key, *silent)


def expert_loads(version_pk: int) -> list[ExpertLoad]:
    """The expert loads of each engine of a version that spoke in the last seconds. Raises redis.RedisError."""
    found = [msgspec.json.decode(body) for body in stream_client().hgetall(experts_key(version_pk)).values()]
    return [msgspec.convert(row["stats"], ExpertLoad) for row in found if time.time() - row["at"] < FRESH_SECONDS]


def engine_stats(version_pk: int) -> list[Stats]:
    """The counts of each engine of a version that spoke in the last seconds. Raises redis.RedisError."""
    found = [msgspec.json.decode(body) for body in stream_client().hgetall(stats_key(version_pk)).values()]
    return [msgspec.convert({**row["stats"], "type": "stats"}, Stats) for row in found
            if time.time() - row["at"] < FRESH_SECONDS]
