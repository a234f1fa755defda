"""The sweeper: dead leases are folded and queued again, lost messages sent again, the hopeless ended with a reason."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models.functions import Now

from registry.models import Deployment, DeploymentState
from webapp.serving.claims import generation_claim
from webapp.serving.dispatch import generation_dispatch, queue_length
from webapp.serving.models import Generation, GenerationState
from webapp.serving.streams import StreamEntry, StreamWrite, stream_tail, streams_publish
from webapp.serving.sweeper import Sweeper

if TYPE_CHECKING:
    from registry.models import Version

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "wanted")]
Make = Callable[..., Generation]


@pytest.fixture
def wanted(bare_version: "Version") -> Deployment:
    return Deployment.objects.create(version=bare_version)


@pytest.fixture
def dead(make_generation: Make) -> Generation:
    """A running generation with two checkpointed tokens and three more in the stream, whose worker is gone."""
    generation = make_generation(output_ids=[11, 12], output_count=2, text="ab")
    generation_claim(pk=generation.pk, attempt=0)
    publish(generation, 1, 5)
    Generation.objects.filter(pk=generation.pk).update(lease_until=Now() - timedelta(seconds=1))
    return Generation.objects.get(pk=generation.pk)


def publish(generation: Generation, first: int, last: int, *, reason: str = "", attempt: int = 1) -> set[str]:
    entries = [StreamEntry(index, 10 + index, "abcdefgh"[index - 1], reason if index == last else "")
               for index in range(first, last + 1)]
    return streams_publish([StreamWrite(generation_id=str(generation.pk), attempt=attempt, entries=entries)])


def test_a_dead_lease_is_queued_again_with_every_token_that_anyone_may_have_seen(dead: Generation) -> None:
    Sweeper().sweep()
    dead.refresh_from_db()
    assert (dead.state, dead.output_ids, dead.text) == (GenerationState.QUEUED, [11, 12, 13, 14, 15], "abcde")
    assert dead.output_count == 5
    assert queue_length(dead.version_id) == 1


def test_after_the_fold_the_old_attempt_can_add_nothing_to_the_stream(dead: Generation) -> None:
    Sweeper().sweep()
    assert publish(dead, 6, 7) == {str(dead.pk)}
    assert len(stream_tail(dead.pk, after=0)) == 5
    dead.refresh_from_db()
    resumed = generation_claim(pk=dead.pk, attempt=dead.attempt)
    assert resumed is not None
    assert publish(dead, 6, 7, attempt=resumed.attempt) == set()


def test_a_lease_that_runs_is_left_alone(make_generation: Make) -> None:
    generation = make_generation()
    generation_claim(pk=generation.pk, attempt=0)
    Sweeper().sweep()
    generation.refresh_from_db()
    assert (generation.state, generation.attempt) == (GenerationState.RUNNING, 1)


def test_one_whose_last_token_is_in_the_stream_is_done_and_not_run_again(dead: Generation) -> None:
    publish(dead, 6, 7, reason="stop")
    Sweeper().sweep()
    dead.refresh_from_db()
    assert (dead.state, dead.finish_reason, dead.text) == (GenerationState.DONE, "stop", "abcdefg")
    assert dead.ended_at is not None
    assert queue_length(dead.version_id) == 0


def test_one_that_was_asked_to_stop_ends_stopped_with_its_text(dead: Generation) -> None:
    Generation.objects.filter(pk=dead.pk).update(stop_requested=True)
    Sweeper().sweep()
    dead.refresh_from_db()
    assert (dead.state, dead.text) == (GenerationState.STOPPED, "abcde")


def test_a_stream_with_a_gap_is_folded_up_to_the_gap(dead: Generation, clean_redis: Any) -> None:
    clean_redis.xdel(f"generation:{dead.pk}", "4-0")
    Sweeper().sweep()
    dead.refresh_from_db()
    assert (dead.output_ids, dead.text) == ([11, 12, 13], "abc")


def age(generation: Generation, seconds: float) -> None:
    Generation.objects.filter(pk=generation.pk).update(queued_at=Now() - timedelta(seconds=seconds))


def test_a_queued_one_whose_message_was_lost_is_sent_again_but_not_at_once(make_generation: Make) -> None:
    fresh, lost = make_generation(), make_generation()
    age(lost, 10)
    Sweeper().sweep()
    assert queue_length(lost.version_id) == 1
    age(fresh, 10)
    Sweeper().sweep()
    assert queue_length(lost.version_id) == 2


def test_a_long_queue_is_not_sent_again_while_its_messages_wait(make_generation: Make) -> None:
    for _ in range(5):
        generation = make_generation()
        age(generation, 100)
        assert generation_dispatch(pk=generation.pk, version_pk=generation.version_id)
    for _ in range(3):
        Sweeper().sweep()
    assert queue_length(generation.version_id) == 5


def test_what_waits_for_a_version_that_failed_to_load_ends_with_the_reason(
        make_generation: Make, wanted: Deployment) -> None:
    generation = make_generation()
    Deployment.objects.filter(pk=wanted.pk).update(state=DeploymentState.FAILED, reason="model.gguf: damaged")
    Sweeper().sweep()
    generation.refresh_from_db()
    assert (generation.state, generation.error) == (GenerationState.FAILED, "model.gguf: damaged")


def test_what_waits_for_a_version_that_was_unloaded_ends_with_that_reason(
        make_generation: Make, wanted: Deployment) -> None:
    generation = make_generation()
    Deployment.objects.filter(pk=wanted.pk).update(wanted=False)
    Sweeper().sweep()
    generation.refresh_from_db()
    assert generation.state == GenerationState.FAILED and "unloaded" in generation.error
