"""The token stream on a real Valkey: in order, without doubles, fenced by attempt, read up to the first gap."""

from typing import Any

import pytest

from webapp.serving.streams import (
    ENDED_SECONDS,
    LIVE_SECONDS,
    StreamEntry,
    StreamWrite,
    fence_key,
    stream_fence,
    stream_key,
    stream_read,
    stream_tail,
    streams_publish,
)

pytestmark = pytest.mark.usefixtures("clean_redis")


def entries(first: int, last: int, *, word: str = "w") -> list[StreamEntry]:
    return [StreamEntry(index, 100 + index, f"{word}{index} ") for index in range(first, last + 1)]


def write(generation_id: str, first: int, last: int, *, attempt: int = 1, **more: Any) -> StreamWrite:
    return StreamWrite(generation_id=generation_id, attempt=attempt, entries=entries(first, last), **more)


def test_entries_come_back_in_order_with_their_text() -> None:
    text = "日本 🦜\n\x00"
    streams_publish([StreamWrite(generation_id="g", attempt=1, entries=[StreamEntry(1, 5, text, "stop")])])
    assert stream_tail("g", after=0) == [StreamEntry(1, 5, text, "stop")]


def test_entries_that_are_sent_again_are_left_out_quietly_and_new_ones_among_them_are_taken() -> None:
    streams_publish([write("g", 1, 3)])
    assert streams_publish([write("g", 2, 5)]) == set()
    assert stream_tail("g", after=0) == entries(1, 5)


def test_several_streams_are_written_in_one_call_and_only_the_fenced_one_is_refused() -> None:
    stream_fence("b", attempt=3)
    assert streams_publish([write("a", 1, 2), write("b", 1, 2, attempt=2), write("c", 1, 1)]) == {"b"}
    assert (len(stream_tail("a", after=0)), stream_tail("b", after=0), len(stream_tail("c", after=0))) == (2, [], 1)


def test_a_newer_attempt_that_writes_fences_off_the_older_one() -> None:
    streams_publish([write("g", 1, 2, attempt=1)])
    streams_publish([write("g", 3, 3, attempt=2)])
    assert streams_publish([write("g", 4, 4, attempt=1)]) == {"g"}
    assert [entry.index for entry in stream_tail("g", after=0)] == [1, 2, 3]


def test_a_fence_is_never_lowered() -> None:
    stream_fence("g", attempt=5)
    stream_fence("g", attempt=2)
    assert streams_publish([write("g", 1, 1, attempt=4)]) == {"g"}


def test_reading_stops_at_a_gap() -> None:
    streams_publish([write("g", 1, 2), write("g", 5, 6)])
    assert [entry.index for entry in stream_tail("g", after=0)] == [1, 2]
    assert stream_tail("g", after=2) == []
    assert [entry.index for entry in stream_tail("g", after=4)] == [5, 6]


async def test_a_consumer_reads_the_same() -> None:
    streams_publish([write("g", 1, 4)])
    assert await stream_read("g", after=1) == entries(2, 4)
    assert await stream_read("missing", after=0) == []


def test_a_stream_lives_a_day_and_ten_minutes_after_its_end(clean_redis: Any) -> None:
    streams_publish([write("g", 1, 1)])
    assert ENDED_SECONDS < clean_redis.ttl(stream_key("g")) <= LIVE_SECONDS
    streams_publish([StreamWrite(generation_id="g", attempt=1, ended=True)])
    assert 0 < clean_redis.ttl(stream_key("g")) <= ENDED_SECONDS
    assert 0 < clean_redis.ttl(fence_key("g")) <= ENDED_SECONDS


def test_what_is_no_stream_is_an_error_and_not_taken_for_a_double(clean_redis: Any) -> None:
    import redis

    clean_redis.set(stream_key("g"), "something else")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        streams_publish([write("g", 1, 1)])
