"""Who may write a generation: one claim wins, old attempts write nothing, leases run out on the database's clock."""

import threading
from collections.abc import Callable

import pytest
from django.db import connections
from django.db.models.functions import Now

from webapp.serving.claims import (
    MAX_INTERRUPTIONS,
    generation_checkpoint,
    generation_claim,
    generation_finish,
    generation_release,
    generation_take_over,
    stops_asked,
)
from webapp.serving.models import Generation, GenerationState

Make = Callable[..., Generation]


def let_lease_run_out(generation: Generation) -> None:
    from datetime import timedelta

    Generation.objects.filter(pk=generation.pk).update(lease_until=Now() - timedelta(seconds=1))


@pytest.mark.django_db(transaction=True)
def test_of_many_threads_that_claim_at_once_exactly_one_wins(make_generation: Make) -> None:
    generation = make_generation()
    winners: list[Generation] = []
    start = threading.Barrier(16)

    def claim() -> None:
        start.wait()
        claimed = generation_claim(pk=generation.pk, attempt=0, mode="float32")
        if claimed is not None:
            winners.append(claimed)
        connections.close_all()

    threads = [threading.Thread(target=claim) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [winner.attempt for winner in winners] == [1]
    generation.refresh_from_db()
    assert (generation.state, generation.attempt, generation.mode) == (GenerationState.RUNNING, 1, "float32")


@pytest.mark.django_db
def test_a_late_duplicate_claims_nothing(make_generation: Make) -> None:
    generation = make_generation()
    first = generation_claim(pk=generation.pk, attempt=0)
    assert first is not None
    assert generation_claim(pk=generation.pk, attempt=0) is None
    assert generation_claim(pk=generation.pk, attempt=1) is None  # running, not queued
    assert generation_finish(first, state=GenerationState.DONE, finish_reason="stop")
    assert generation_claim(pk=generation.pk, attempt=1) is None


@pytest.mark.django_db
def test_writes_of_an_older_attempt_change_nothing(make_generation: Make) -> None:
    row = make_generation()
    old = generation_claim(pk=row.pk, attempt=0)
    assert old is not None
    assert generation_release(Generation.objects.get(pk=row.pk))
    new = generation_claim(pk=row.pk, attempt=1)
    assert new is not None
    old.text, old.output_ids, old.output_count = "old", [1], 1
    assert not generation_checkpoint(old)
    assert not generation_release(old)
    assert not generation_finish(old, state=GenerationState.DONE, finish_reason="stop")
    row.refresh_from_db()
    assert (row.state, row.attempt, row.text) == (GenerationState.RUNNING, 2, "")


@pytest.mark.django_db
def test_only_a_lease_that_ran_out_can_be_taken_over_and_only_once(make_generation: Make) -> None:
    row = make_generation()
    held = generation_claim(pk=row.pk, attempt=0)
    assert held is not None
    first, second = Generation.objects.get(pk=row.pk), Generation.objects.get(pk=row.pk)
    assert not generation_take_over(first)
    let_lease_run_out(row)
    assert generation_take_over(first)
    assert not generation_take_over(second)
    assert not generation_checkpoint(held)


@pytest.mark.django_db
def test_a_checkpoint_renews_the_lease_and_keeps_the_tokens(make_generation: Make) -> None:
    row = make_generation()
    held = generation_claim(pk=row.pk, attempt=0)
    assert held is not None
    let_lease_run_out(row)
    held.output_ids, held.output_count, held.text = [7, 8], 2, "ab"
    assert generation_checkpoint(held)
    row.refresh_from_db()
    assert (row.output_ids, row.output_count, row.text) == ([7, 8], 2, "ab")
    assert not generation_take_over(row)


@pytest.mark.django_db
def test_what_is_cut_off_again_and_again_without_a_token_fails_with_the_reason(make_generation: Make) -> None:
    row = make_generation()
    for attempt in range(MAX_INTERRUPTIONS):
        held = generation_claim(pk=row.pk, attempt=attempt)
        assert held is not None
        generation_release(held, interrupted_by="the engine was killed by SIGSEGV")
    row.refresh_from_db()
    assert row.state == GenerationState.FAILED
    assert f"{MAX_INTERRUPTIONS} times" in row.error and "SIGSEGV" in row.error


@pytest.mark.django_db
def test_interruptions_are_forgotten_when_it_advanced_and_orderly_releases_do_not_count(make_generation: Make) -> None:
    row = make_generation()
    for attempt in range(3 * MAX_INTERRUPTIONS):
        held = generation_claim(pk=row.pk, attempt=attempt)
        assert held is not None
        if attempt % 3 == 2:
            held.output_ids, held.output_count = [*held.output_ids, 5], held.output_count + 1
        generation_release(held, interrupted_by="" if attempt % 3 == 0 else "killed")
    row.refresh_from_db()
    assert (row.state, row.interruptions) == (GenerationState.QUEUED, 0)


@pytest.mark.django_db
def test_stops_are_seen_for_running_generations_only(make_generation: Make) -> None:
    rows = [make_generation(state=state, stop_requested=asked) for state, asked in
            [("running", True), ("running", False), ("queued", True)]]
    assert stops_asked(row.pk for row in rows) == {str(rows[0].pk)}
