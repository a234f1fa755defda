"""Following replies: messages are hints, and what they lack is found in row and stream, so every text is whole once."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from webapp.serving.database import database_threads
from webapp.serving.models import Generation
from webapp.serving.replies import Follower, Part, Text, reply_hub
from webapp.serving.reply_channel import ReplyEnd, ReplyPart, parse_parts, replies_publish
from webapp.serving.streams import StreamEntry, StreamWrite, streams_publish

WORDS = ["Once", " upon", " a", " time", "."]
ENTRIES = [StreamEntry(index, 100 + index, word) for index, word in enumerate(WORDS, start=1)]
END = ReplyEnd(reason="stop", prompt_tokens=3, cached_tokens=2, output_tokens=5)
Make = Callable[..., Generation]


def part(*entries: StreamEntry, end: ReplyEnd | None = None, tail: str = "") -> ReplyPart:
    return ReplyPart(generation="g", entries=entries, end=end, tail=tail)


def text_of(parts: list[Part]) -> str:
    return "".join(found.text for found in parts if isinstance(found, Text))


@pytest.fixture
def taken() -> list[Part]:
    return []


@pytest.fixture
def follower(taken: list[Part]) -> Follower:
    return Follower("g", taken.append, now=0.0)


def row(**fields: Any) -> Generation:
    return Generation(**{"state": "running", "output_count": 0, "text": "", "prompt_tokens": 3, **fields})


def test_messages_in_order_bring_text_and_end(follower: Follower, taken: list[Part]) -> None:
    follower.push(part(*ENTRIES[:2]))
    follower.push(part(*ENTRIES[2:], end=END, tail="!"))
    assert text_of(taken) == "Once upon a time.!" and taken[-1] == END and follower.over


def test_doubles_are_left_out_and_a_gap_waits(follower: Follower, taken: list[Part]) -> None:
    follower.push(part(*ENTRIES[:2]))
    follower.push(part(*ENTRIES[:3]))
    follower.push(part(ENTRIES[4], end=END))
    assert text_of(taken) == "Once upon a" and follower.broken and not follower.over
    follower.catch_up(row(state="done", finish_reason="stop", output_count=5, text="".join(WORDS)), ENTRIES[3:])
    assert text_of(taken) == "Once upon a time." and isinstance(taken[-1], ReplyEnd) and not follower.broken


def test_what_the_stream_lost_comes_from_the_row(follower: Follower, taken: list[Part]) -> None:
    follower.push(part(*ENTRIES[:1]))
    follower.catch_up(row(output_count=4, text="Once upon a time"), [])
    assert text_of(taken) == "Once upon a time" and follower.last == 4
    follower.push(part(ENTRIES[4], end=END))
    assert text_of(taken) == "Once upon a time." and follower.over


def test_an_end_before_the_last_tokens_waits_for_them(follower: Follower, taken: list[Part]) -> None:
    follower.push(part(*ENTRIES[:3], end=END))
    assert follower.broken and not follower.over
    follower.catch_up(row(state="failed", finish_reason="failed", error="why", output_count=5, text="".join(WORDS)), [])
    end = taken[-1]
    assert isinstance(end, ReplyEnd) and (end.reason, end.error) == ("failed", "why")


def test_a_message_crosses_the_wire() -> None:
    scored = StreamEntry(1, 7, "x", "", '{"token_id":7}')
    assert [list(found.entries) for found in parse_parts(_encoded([part(scored, end=END)]))] == [[scored]]


def _encoded(parts: list[ReplyPart]) -> bytes:
    return msgspec.json.encode(parts)


@pytest.fixture
def _threads_end() -> Iterator[None]:
    yield
    database_threads.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_redis", "_threads_end")
@pytest.mark.parametrize("told", [True, False], ids=["told", "every message lost"])
async def test_the_hub_brings_every_text_whole_told_or_not(make_generation: Make, told: bool) -> None:
    from asgiref.sync import sync_to_async

    hub = await reply_hub()
    generation = await sync_to_async(make_generation)(reply_to=hub.channel)
    parts: asyncio.Queue[Part] = asyncio.Queue()
    follower = hub.follow(generation.pk, parts.put_nowait)

    def write() -> None:
        streams_publish([StreamWrite(generation_id=str(generation.pk), attempt=1, entries=ENTRIES, ended=True)])
        Generation.objects.filter(pk=generation.pk).update(
            state="done", finish_reason="stop", output_count=5, text="".join(WORDS), output_ids=[1] * 5)
        if told:
            replies_publish({hub.channel: [ReplyPart(generation=str(generation.pk), entries=ENTRIES, end=END)]})

    await sync_to_async(write)()
    found: list[Part] = []
    async with asyncio.timeout(8):
        while not found or not isinstance(found[-1], ReplyEnd):
            found.append(await parts.get())
    assert text_of(found) == "Once upon a time."
    hub.leave(follower)
    assert hub.following == 0
    await hub.end()
