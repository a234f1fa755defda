"""The pump on a real database and Valkey: what the engine says reaches row, stream and sockets, once and in order."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from channels.layers import get_channel_layer
from django.db import connection
from django.db.models.functions import Now

from inference.protocol import Rejected, RequestPhase, SequenceDelta, StepOutput, Timings
from tests.webapp.serving.running_node import wait_for
from tests.webapp.serving.running_valkey import OwnValkey
from webapp.serving.claims import generation_claim, generation_release
from webapp.serving.events import StepEvent, user_group
from webapp.serving.models import Generation, GenerationState
from webapp.serving.pump import Pump, StopAsked
from webapp.serving.streams import stream_fence, stream_tail
from webapp.serving.track import Track

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

Make = Callable[..., Generation]
TIMINGS = Timings(queue_s=0.1, prefill_s=0.2, decode_s=0.3, prompt_tokens=3, cached_tokens=2, output_tokens=2)


class PumpOnTest:
    """A pump, what it cancelled, and shorthands for what an engine says."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.pump = Pump(cancel=self.cancelled.append)
        self.pump.start()

    def admit(self, row: Generation) -> Track:
        claimed = generation_claim(pk=row.pk, attempt=row.attempt, mode="float32")
        assert claimed is not None
        track = Track(claimed)
        assert self.pump.admit(track)
        return track

    def say(self, track: Track, index: int, *texts: str, phase: RequestPhase = "decoding", **more: Any) -> None:
        ids = list(range(1000 + index - len(texts) + 1, 1000 + index + 1))
        self.pump.put(StepOutput(deltas=[SequenceDelta(request_id=track.request_id, index=index, token_ids=ids,
                                                       texts=list(texts), phase=phase, **more)]))


@pytest.fixture
def pumping() -> Iterator[PumpOnTest]:
    pumping = PumpOnTest()
    yield pumping
    pumping.pump.drain()
    pumping.pump.join(10)


def row(generation: Generation) -> Generation:
    return Generation.objects.select_related("version__model").get(pk=generation.pk)


def test_an_ended_generation_is_whole_in_the_row_before_its_task_is_told(
        pumping: PumpOnTest, make_generation: Make) -> None:
    generation = make_generation()
    track = pumping.admit(generation)
    pumping.say(track, 0, phase="prefill", prefill_done=2)
    pumping.say(track, 1, "Par")
    pumping.say(track, 2, "is.", finish_reason="stop", timings=TIMINGS)
    assert track.over.wait(5)
    after = row(generation)
    assert (after.state, after.finish_reason, after.text) == (GenerationState.DONE, "stop", "Paris.")
    assert (after.output_ids, after.output_count, after.cached_tokens) == ([1001, 1002], 2, 2)
    assert after.timings == {"queue_s": 0.1, "prefill_s": 0.2, "decode_s": 0.3}
    assert after.created_at <= after.first_token_at <= after.ended_at  # type: ignore[operator]
    wait_for(lambda: len(stream_tail(generation.pk, after=0)) == 2, seconds=5, what="the stream has both")
    assert [(entry.text, entry.finish_reason) for entry in stream_tail(generation.pk, after=0)] == [
        ("Par", ""), ("is.", "stop")]


def test_sockets_get_every_piece_in_order_and_the_final_view_last(pumping: PumpOnTest, make_generation: Make) -> None:
    generation = make_generation()
    heard, ready = [], threading.Event()

    async def listen() -> None:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(user_group(generation.owner_id), channel)
        ready.set()
        while not any(view["state"] == "stopped" for event in heard for view in event["views"]):
            heard.append(await asyncio.wait_for(layer.receive(channel), 10))

    listener = threading.Thread(target=asyncio.run, args=[listen()])
    listener.start()
    assert ready.wait(5)
    track = pumping.admit(generation)
    for index, text in enumerate(["Once", " upon", " a"], start=1):
        pumping.say(track, index, text)
    pumping.say(track, 3, finish_reason="cancelled", tail=" ti")
    listener.join(15)
    assert not listener.is_alive()
    check_events(heard)
    assert row(generation).text == "Once upon a ti"


def check_events(heard: list[StepEvent]) -> None:
    deltas = [delta for event in heard for delta in event["deltas"]]
    assert "".join(delta["text"] for delta in deltas) == "Once upon a ti"
    last = 0
    for delta in deltas:
        assert delta["first"] == last + 1
        last = delta["last"]
    assert heard[-1]["deltas"] == []
    assert heard[-1]["views"][0]["state"] == "stopped"
    assert heard[-1]["views"][0]["index"] == last == 3


def test_a_running_generation_is_checkpointed_and_its_lease_renewed(pumping: PumpOnTest, make_generation: Make) -> None:
    generation = make_generation()
    track = pumping.admit(generation)
    pumping.say(track, 1, "a")
    wait_for(lambda: row(generation).output_count == 1, seconds=3, what="the first checkpoint")
    before = row(generation).lease_until
    pumping.say(track, 2, "b")
    wait_for(lambda: row(generation).output_count == 2, seconds=3, what="the second checkpoint")
    assert before is not None and row(generation).lease_until > before  # type: ignore[operator]


def test_a_stop_message_and_the_flag_in_the_row_each_cancel_it(pumping: PumpOnTest, make_generation: Make) -> None:
    told, flagged, other = (pumping.admit(make_generation()) for _ in range(3))
    pumping.pump.put(StopAsked(told.pk))
    Generation.objects.filter(pk=flagged.pk).update(stop_requested=True)
    wait_for(lambda: len(set(pumping.cancelled)) == 2, seconds=1.5, what="both are cancelled")
    assert set(pumping.cancelled) == {told.request_id, flagged.request_id}
    assert other.ended is None


def test_a_rejected_request_fails_with_the_engines_reason(pumping: PumpOnTest, make_generation: Make) -> None:
    generation = make_generation()
    track = pumping.admit(generation)
    pumping.pump.put(Rejected(request_id=track.request_id, reason="prompt_ids: 70000 is not in the vocabulary"))
    assert track.over.wait(5)
    assert (row(generation).state, row(generation).error) == (
        GenerationState.FAILED, "prompt_ids: 70000 is not in the vocabulary")


def test_another_attempt_ends_it_here_without_a_word(pumping: PumpOnTest, make_generation: Make) -> None:
    taken, fenced = make_generation(), make_generation()
    first, second = pumping.admit(taken), pumping.admit(fenced)
    generation_release(row(taken))
    stream_fence(fenced.pk, attempt=2)
    pumping.say(second, 1, "x")
    assert first.over.wait(3) and second.over.wait(3)
    assert set(pumping.cancelled) == {first.request_id, second.request_id}
    assert row(taken).state == GenerationState.QUEUED
    assert stream_tail(fenced.pk, after=0) == []


@pytest.mark.parametrize("interrupted_by", ["", "the engine was killed by SIGKILL"])
def test_draining_releases_with_all_tokens_and_lets_nobody_in(
        pumping: PumpOnTest, make_generation: Make, interrupted_by: str) -> None:
    generation = make_generation()
    track = pumping.admit(generation)
    pumping.say(track, 2, "a", "b")
    pumping.pump.drain(interrupted_by=interrupted_by)
    pumping.pump.join(5)
    after = row(generation)
    assert (after.state, after.output_ids, after.text) == (GenerationState.QUEUED, [1001, 1002], "ab")
    assert pumping.pump.released == [(track.pk, generation.version_id)]
    assert track.over.is_set()
    assert not pumping.pump.admit(Track(row(make_generation(claimed_at=None))))


def test_while_the_database_is_locked_nothing_is_lost(pumping: PumpOnTest, make_generation: Make) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has one lock for all")
    generation = make_generation()
    track = pumping.admit(generation)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        pumping.say(track, 1, "a", finish_reason="length")
        assert not track.over.wait(1.5)
        cursor.execute("COMMIT")
    assert track.over.wait(10)
    assert row(generation).state == GenerationState.DONE


def test_while_valkey_is_killed_and_comes_back_every_entry_arrives_in_order(
        own_valkey: OwnValkey, pumping: PumpOnTest, make_generation: Make) -> None:
    generation = make_generation()
    track = pumping.admit(generation)
    pumping.say(track, 1, "t1 ")
    wait_for(lambda: len(stream_tail(generation.pk, after=0)) == 1, seconds=5, what="the first entry")
    own_valkey.kill()
    for index in range(2, 40):
        pumping.say(track, index, f"t{index} ")
    wait_for(lambda: row(generation).output_count == 39, seconds=10, what="rows are written meanwhile")
    own_valkey.start()
    pumping.say(track, 40, "t40", finish_reason="length")
    wait_for(lambda: len(stream_tail(generation.pk, after=0)) == 40, seconds=10, what="all entries")
    assert [entry.index for entry in stream_tail(generation.pk, after=0)] == list(range(1, 41))
    assert "".join(entry.text for entry in stream_tail(generation.pk, after=0)) == row(generation).text
    assert Generation.objects.filter(pk=generation.pk, state="done", ended_at__lte=Now()).exists()
