"""The sweeper: generations whose worker died, whose message was lost, or whose model can't be loaded, go on or end."""

import logging
from datetime import timedelta

from django.db.models import Count
from django.db.models.functions import Now

from registry.loads import VersionLoad, version_loads
from registry.models import Version
from webapp.serving.claims import generation_finish, generation_release, generation_take_over
from webapp.serving.dispatch import generation_dispatch, queue_length
from webapp.serving.events import events_send, step_event
from webapp.serving.models import Generation, GenerationState
from webapp.serving.selectors import generation_view
from webapp.serving.streams import stream_client, stream_fence, stream_tail

logger = logging.getLogger(__name__)
BATCH = 200
UNCLAIMED_SECONDS = 3
SHOWN = 100  # of a version's queue, whose people are told their place


class Sweeper:
    """What one node sweeps; several may do it at once, since every write is guarded."""

    def __init__(self) -> None:
        self._shown: dict[str, object] = {}

    def sweep(self) -> None:
        """One round. Raises redis.RedisError while Valkey is away, before it changes anything."""
        stream_client().ping()
        recover_dead()
        loads = queued_loads()
        end_hopeless(loads)
        redispatch_lost()
        self._show_queues(loads)

    def _show_queues(self, loads: dict[int, VersionLoad]) -> None:
        """Tell people whose place in the queue, or whose model's load, changed since the last round."""
        shown: dict[str, object] = {}
        for version_pk, load in loads.items():
            rows = Generation.objects.select_related("version__model").filter(
                version_id=version_pk, state=GenerationState.QUEUED).order_by("created_at")[:SHOWN]
            for position, row in enumerate(rows):
                shown[str(row.pk)] = mark = (position, load.state, str(load.progress))
                if self._shown.get(str(row.pk)) != mark:
                    _send_view(row, load=load, position=position)
        self._shown = shown


def recover_dead() -> int:
    """Put running generations whose lease ran out back in the queue, with every token that anyone may have seen."""
    rows = Generation.objects.select_related("version__model").filter(
        state=GenerationState.RUNNING, lease_until__lt=Now()).order_by("lease_until")[:BATCH]
    return sum(generation_recover(row) for row in rows)


def generation_recover(generation: Generation) -> bool:
    """Take over one whose lease ran out, fold the stream's tail into it, and queue or end it; false if another did.

    The fence comes before the tail is read: from then on the old attempt can't add to the stream.
    """
    if not generation_take_over(generation):
        return False
    stream_fence(generation.pk, attempt=generation.attempt)
    tail = stream_tail(generation.pk, after=generation.output_count)
    generation.output_ids += [entry.token_id for entry in tail]
    generation.text += "".join(entry.text for entry in tail)
    generation.output_count += len(tail)
    if tail and generation.first_token_at is None:
        generation.first_token_at = generation.claimed_at
    reason = tail[-1].finish_reason if tail else ""
    if reason:
        ok = generation_finish(generation, state=_final_state(reason), finish_reason=reason)
    elif generation.stop_requested:
        ok = generation_finish(generation, state=GenerationState.STOPPED, finish_reason="cancelled")
    else:
        ok = generation_release(generation, interrupted_by="its worker stopped answering")
    if ok:
        logger.info("generation %s: the lease of attempt %d ran out; %d tokens folded, now %s", generation.pk,
                    generation.attempt - 1, len(tail), generation.state)
        if generation.state == GenerationState.QUEUED:
            generation_dispatch(pk=generation.pk, version_pk=generation.version_id, resumed=True)
        _send_view(generation)
    return ok


def _final_state(finish_reason: str) -> GenerationState:
    endings = {"cancelled": GenerationState.STOPPED, "failed": GenerationState.FAILED}
    return endings.get(finish_reason, GenerationState.DONE)


def queued_loads() -> dict[int, VersionLoad]:
    """The loads of the versions that have queued generations."""
    waiting = Generation.objects.filter(state=GenerationState.QUEUED).order_by().values("version")
    return version_loads(Version.objects.filter(pk__in=waiting.distinct()))


def end_hopeless(loads: dict[int, VersionLoad]) -> None:
    """End what is queued for a version that failed to load, or that somebody unloaded."""
    for version_pk, load in loads.items():
        if load.wanted:
            continue
        reason = load.reason if load.state == "failed" else "The model was unloaded before it could answer."
        rows = Generation.objects.select_related("version__model").filter(
            version_id=version_pk, state=GenerationState.QUEUED)[:BATCH]
        for row in rows:
            ended = Generation.objects.filter(pk=row.pk, state=GenerationState.QUEUED, attempt=row.attempt).update(
                state=GenerationState.FAILED, finish_reason="failed", error=reason, ended_at=Now())
            if ended:
                row.refresh_from_db(fields=["state", "finish_reason", "error", "ended_at"])
                _send_view(row)


def redispatch_lost() -> int:
    """Send messages again when a version's queue holds fewer than it has queued generations.

    A worker that was killed may have had some in its hands, and a Valkey may have lost its data. Sending one twice does
    no harm; comparing with the queue's length keeps a long queue from being sent again and again.
    """
    sent = 0
    rows = Generation.objects.filter(state=GenerationState.QUEUED).order_by().values_list("version_id")
    for version_pk, queued in rows.annotate(number=Count("pk")):
        missing = queued - queue_length(version_pk)
        if missing > 0:
            sent += _redispatch_oldest(version_pk, missing)
    return sent


def _redispatch_oldest(version_pk: int, count: int) -> int:
    old = Generation.objects.filter(version_id=version_pk, state=GenerationState.QUEUED,
                                    queued_at__lt=Now() - timedelta(seconds=UNCLAIMED_SECONDS))
    sent = 0
    for pk, attempt in old.order_by("created_at").values_list("pk", "attempt")[:min(count, BATCH)]:
        if Generation.objects.filter(pk=pk, state=GenerationState.QUEUED).update(queued_at=Now()):
            sent += generation_dispatch(pk=pk, version_pk=version_pk, resumed=attempt > 0)
    if sent:
        logger.info("sent %d queued generations again", sent)
    return sent


def _send_view(generation: Generation, *, load: VersionLoad | None = None, position: int | None = None) -> None:
    view = generation_view(generation, load=load, position=position)
    events_send([(generation.owner_id, step_event(deltas=[], views=[view.to_dict()]))])
