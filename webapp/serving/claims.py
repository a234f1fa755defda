"""Who may write a generation: claims, leases and the guarded writes of the attempt that holds it.

Every write is one UPDATE with the attempt and the state in its WHERE, leases are on the database's clock, and a write
that changes no row means that the attempt is over: another took the generation, or it ended or was deleted.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from registry.selectors import full_name
from webapp.accounts.models import Usage
from webapp.accounts.services import usage_record
from webapp.serving.models import Generation, GenerationState, Phase

LEASE_SECONDS = 5
MAX_INTERRUPTIONS = 5
PROGRESS = ("phase", "output_ids", "output_count", "text", "prefill_done", "cached_tokens", "first_token_at", "timings")


def _lease() -> Any:
    return Now() + timedelta(seconds=LEASE_SECONDS)


def _held(generation: Generation) -> QuerySet[Generation]:
    """The row, as long as this attempt holds it."""
    return Generation.objects.filter(pk=generation.pk, attempt=generation.attempt, state=GenerationState.RUNNING)


def _progress(generation: Generation) -> dict[str, Any]:
    return {name: getattr(generation, name) for name in PROGRESS}


def generation_claim(*, pk: UUID | str, attempt: int, mode: str = "") -> Generation | None:
    """Begin attempt + 1 of a queued generation; None when it isn't queued at that attempt (a late duplicate)."""
    claimed = Generation.objects.filter(pk=pk, attempt=attempt, state=GenerationState.QUEUED).update(
        state=GenerationState.RUNNING, phase=Phase.WAITING, attempt=attempt + 1, claimed_count=F("output_count"),
        prefill_done=0, lease_until=_lease(), claimed_at=Now(), mode=mode)
    if not claimed:
        return None
    return Generation.objects.select_related("version__model").filter(pk=pk, attempt=attempt + 1).first()


def generation_checkpoint(generation: Generation) -> bool:
    """Write how far it is and renew the lease; false when this attempt no longer holds it."""
    return _held(generation).update(lease_until=_lease(), **_progress(generation)) == 1


def generation_finish(generation: Generation, *, state: GenerationState, finish_reason: str, error: str = "") -> bool:
    """Write the whole, end it and note what it used; false when this attempt no longer holds it."""
    generation.state, generation.finish_reason, generation.error = state, finish_reason, error
    generation.phase, generation.lease_until = Phase.NONE, None
    with transaction.atomic():
        ended = _held(generation).update(state=state, finish_reason=finish_reason, error=error, lease_until=None,
                                         ended_at=generation.ended_at or Now(), **_progress(generation)) == 1
        if ended:
            usage_record([_usage(generation)])
    return ended


def _usage(generation: Generation) -> Usage:
    """What a generation used. A request's prompt is counted once, whatever the number of its replies."""
    prompt, cached = (generation.prompt_tokens, generation.cached_tokens) if generation.counts_prompt else (0, 0)
    seconds = ((generation.ended_at or timezone.now()) - generation.created_at).total_seconds()
    return Usage(
        user_id=generation.owner_id, api_key_id=generation.api_key_id, version_id=generation.version_id,
        model=full_name(generation.version, generation.adapter),
        endpoint=generation.endpoint or "chat", request_id=generation.request_id,
        prompt_tokens=prompt, cached_tokens=cached, output_tokens=generation.output_count, seconds=max(0.0, seconds))


def generation_release(generation: Generation, *, interrupted_by: str = "") -> bool:
    """Write how far it is and put it back in the queue; false when this attempt no longer holds it.

    interrupted_by: why the attempt was cut off; empty for an orderly shutdown. A generation that was cut off
    MAX_INTERRUPTIONS times in a row without a new token fails with that reason.
    """
    interruptions = generation.interruptions
    if interrupted_by:
        advanced = generation.output_count > generation.claimed_count
        interruptions = 0 if advanced else interruptions + 1
        if interruptions >= MAX_INTERRUPTIONS:
            error = f"It was cut off {interruptions} times without a new token. The last time: {interrupted_by}"
            return generation_finish(generation, state=GenerationState.FAILED, finish_reason="failed", error=error)
    generation.state, generation.phase, generation.lease_until = GenerationState.QUEUED, Phase.NONE, None
    return _held(generation).update(state=GenerationState.QUEUED, lease_until=None, queued_at=Now(),
                                    interruptions=interruptions, **_progress(generation)) == 1


def generation_take_over(generation: Generation) -> bool:
    """Take a running generation whose lease ran out: the next attempt is ours, the old one can write no more."""
    taken = _held(generation).filter(lease_until__lt=Now()).update(attempt=F("attempt") + 1, lease_until=_lease())
    if taken:
        generation.attempt += 1
    return taken == 1


def stops_asked(pks: Iterable[object]) -> set[str]:
    """Those of these running generations that somebody asked to stop."""
    rows = Generation.objects.filter(pk__in=list(pks), state=GenerationState.RUNNING, stop_requested=True)
    return {str(pk) for pk in rows.values_list("pk", flat=True)}
