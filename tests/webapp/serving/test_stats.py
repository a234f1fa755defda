"""What engines report: each under its own name, and forgotten when it falls silent, though others go on reporting."""

from typing import Any

import pytest

from inference.protocol import Stats
from webapp.serving import stats
from webapp.serving.stats import engine_stats, engine_stats_publish, stats_key

VERSION = 9


def counts(running: int) -> Stats:
    return Stats(request_key=0, running=running, waiting=0, free_blocks=0, cached_blocks=0, held_blocks=0,
                 total_blocks=0, steps=0, prompt_tokens=0, output_tokens=0, preemptions=0)


def test_an_engine_that_fell_silent_is_dropped_by_the_next_report_of_another(
        clean_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(stats.time, "time", lambda: now[0])
    engine_stats_publish(version_pk=VERSION, engine="old", stats=counts(3))
    engine_stats_publish(version_pk=VERSION, engine="new", stats=counts(1))
    assert sorted(row.running for row in engine_stats(VERSION)) == [1, 3]
    for _ in range(5):  # seconds in which the old one says nothing
        now[0] += 1
        engine_stats_publish(version_pk=VERSION, engine="new", stats=counts(2))
    assert clean_redis.hkeys(stats_key(VERSION)) == [b"new"]
    assert [row.running for row in engine_stats(VERSION)] == [2]
