"""Asking for and stopping generations: what is refused before it is queued, what is queued, and who may stop what."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from registry.models import Deployment, DeploymentState
from webapp.serving.claims import generation_claim
from webapp.serving.dispatch import queue_length
from webapp.serving.errors import GenerationRefused, PromptTooLong, VersionUnavailable
from webapp.serving.models import Generation, GenerationState
from webapp.serving.selectors import generation_for, generation_view
from webapp.serving.services import generation_create, generation_stop, generations_forget

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from registry.models import Version

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
Make = Callable[..., Generation]


def create(owner: "User", version: "Version", *, text: str = "Hello", **sampling: Any) -> Generation:
    return generation_create(owner=owner, version=version, messages=[{"role": "user", "content": text}],
                             sampling={"max_tokens": 5, **sampling})


def test_it_is_queued_with_its_seed_and_has_the_version_loaded(ada: "User", demo_version: "Version") -> None:
    generation = create(ada, demo_version, temperature=0.5, seed=None)
    row = generation_for(viewer=ada, pk=generation.pk)
    assert row.state == GenerationState.QUEUED
    assert row.prompt_tokens == len(row.prompt_ids) > 0
    assert row.params["max_tokens"] == 5 and 0 <= row.params["seed"] < 2**63
    assert Deployment.objects.get(version=demo_version).wanted
    assert queue_length(demo_version.pk) == 1
    view = generation_view(row).to_dict()
    assert (view["state"], view["queue_position"]) == ("loading", 0)


def test_nothing_is_sent_when_the_transaction_is_rolled_back(ada: "User", demo_version: "Version") -> None:
    from django.db import transaction

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        create(ada, demo_version)
        raise ZeroDivisionError
    assert queue_length(demo_version.pk) == 0
    assert not Generation.objects.exists()


def test_a_prompt_over_the_context_is_refused_with_both_numbers(ada: "User", demo_version: "Version") -> None:
    with pytest.raises(PromptTooLong) as refused:
        create(ada, demo_version, text="word " * 9000)
    assert refused.value.limit == demo_version.context_length
    assert refused.value.prompt_tokens > 9000
    for number in (refused.value.prompt_tokens, refused.value.limit):
        assert str(number) in refused.value.message
    assert not Generation.objects.exists()


def test_a_deployment_s_own_limit_counts_and_the_reply_is_cut_to_the_room_left(
        ada: "User", demo_version: "Version") -> None:
    Deployment.objects.create(version=demo_version, max_model_len=64)
    generation = create(ada, demo_version, max_tokens=1000)
    assert generation.params["max_tokens"] == 64 - generation.prompt_tokens
    with pytest.raises(PromptTooLong, match="64"):
        create(ada, demo_version, text="word " * 60)


def test_a_version_that_failed_to_load_is_refused_with_the_reason(ada: "User", bare_version: "Version") -> None:
    Deployment.objects.create(version=bare_version, state=DeploymentState.FAILED, reason="config.json: damaged")
    with pytest.raises(VersionUnavailable, match="config.json: damaged"):
        create(ada, bare_version)


def test_bad_sampling_is_refused_and_names_the_field(ada: "User", demo_version: "Version") -> None:
    with pytest.raises(GenerationRefused) as refused:
        create(ada, demo_version, temperature=-1)
    assert (refused.value.code, refused.value.field) == ("sampling", "temperature")


def test_a_queued_one_is_stopped_at_once_and_never_claimed(ada: "User", make_generation: Make) -> None:
    generation = make_generation()
    assert generation_stop(generation=generation, by=ada).state == GenerationState.STOPPED
    assert generation_claim(pk=generation.pk, attempt=0) is None


def test_a_running_one_is_flagged_and_its_worker_told(
        ada: "User", make_generation: Make, clean_redis: Any) -> None:
    generation = make_generation()
    generation_claim(pk=generation.pk, attempt=0)
    with clean_redis.pubsub(ignore_subscribe_messages=True) as ear:
        ear.subscribe(f"parley.stop.{generation.version_id}")
        ear.get_message(timeout=1)
        stopped = generation_stop(generation=generation, by=ada)
        message = ear.get_message(timeout=2)
    assert (stopped.state, stopped.stop_requested) == (GenerationState.RUNNING, True)
    assert message is not None and message["data"] == str(generation.pk).encode()


def test_an_ended_one_stays_as_it_is(ada: "User", make_generation: Make) -> None:
    generation = make_generation(state="done", finish_reason="stop", text="All of it.")
    after = generation_stop(generation=generation, by=ada)
    assert (after.state, after.stop_requested, after.text) == (GenerationState.DONE, False, "All of it.")


def test_a_foreign_one_looks_like_a_missing_one(make_generation: Make) -> None:
    from django.contrib.auth.models import User

    bob = User.objects.create_user("bob")
    generation = make_generation()
    with pytest.raises(Generation.DoesNotExist):
        generation_for(viewer=bob, pk=generation.pk)
    with pytest.raises(Generation.DoesNotExist):
        generation_stop(generation=generation, by=bob)


def test_the_place_in_the_queue_counts_earlier_ones_of_the_same_version(make_generation: Make) -> None:
    from datetime import timedelta

    from django.utils import timezone

    now = timezone.now()
    rows = [make_generation(created_at=now + timedelta(seconds=number)) for number in range(3)]
    assert [generation_view(row).queue_position for row in rows] == [0, 1, 2]


def test_programs_generations_are_forgotten_after_a_day_and_others_kept(make_generation: Make) -> None:
    def old(**fields: Any) -> Generation:
        made = make_generation(state="done", **fields)
        Generation.objects.filter(pk=made.pk).update(ended_at=timezone.now() - timedelta(days=2))
        return made

    old(reply_to="parley.replies.x")
    kept = {old().pk, make_generation(reply_to="parley.replies.x").pk}
    assert generations_forget() == 1
    assert set(Generation.objects.values_list("pk", flat=True)) == kept
