"""Reads of generations: one door to each, and the view of one that pages and sockets show."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import Count
from django.utils import timezone

from registry.loads import LoadProgress, VersionLoad, version_load
from webapp.serving.models import Generation, GenerationState

ViewState = Literal["queued", "loading", "waiting", "prefill", "decoding", "done", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class GenerationView:
    """A generation as people see it. Times in seconds; `index` is the last output token that the sender knows."""

    id: str
    state: ViewState
    queue_position: int | None
    index: int
    prompt_tokens: int
    prefill_done: int
    cached_tokens: int
    output_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    tokens_per_s: float | None
    finish_reason: str
    error: str
    model: str
    load: LoadProgress | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def generation_for(*, viewer: Any, pk: UUID | str) -> Generation:
    """The viewer's own generation. Raises Generation.DoesNotExist, for a foreign one as for a missing one."""
    return Generation.objects.select_related("version__model").get(owner=viewer, pk=pk)


def generation_view(generation: Generation, *, load: VersionLoad | None = None, position: int | None = None,
                    now: datetime | None = None) -> GenerationView:
    """The view of a generation. Only a queued one costs queries, for its place in the queue and load if not given."""
    state: ViewState = _running_state(generation)
    progress: LoadProgress | None = None
    if generation.state == GenerationState.QUEUED:
        position = queue_position(generation) if position is None else position
        load = load or version_load(generation.version)
        if load.state not in ("loaded", "unloading"):
            state, progress = "loading", load.progress
    ttft, tpot = _speed(generation, now=now or timezone.now())
    return GenerationView(
        id=str(generation.pk), state=state, queue_position=position, index=generation.output_count,
        prompt_tokens=generation.prompt_tokens, prefill_done=generation.prefill_done,
        cached_tokens=generation.cached_tokens, output_tokens=generation.output_count,
        ttft_s=ttft, tpot_s=tpot, tokens_per_s=1 / tpot if tpot else None,
        finish_reason=generation.finish_reason, error=generation.error, model=str(generation.version), load=progress)


def _running_state(generation: Generation) -> ViewState:
    if generation.state == GenerationState.RUNNING:
        return generation.phase or "waiting"  # type: ignore[return-value]
    return generation.state  # type: ignore[return-value]


def _speed(generation: Generation, *, now: datetime) -> tuple[float | None, float | None]:
    """Seconds from being asked for to the first token, and seconds a token after it, interruptions included."""
    if generation.first_token_at is None:
        return None, None
    ttft = (generation.first_token_at - generation.created_at).total_seconds()
    writing = ((generation.ended_at or now) - generation.first_token_at).total_seconds()
    tokens = generation.output_count - 1
    return max(ttft, 0.0), writing / tokens if tokens > 0 and writing > 0 else None


def queue_position(generation: Generation) -> int:
    """How many queued generations of the same version were asked for earlier."""
    earlier = Generation.objects.filter(version_id=generation.version_id, state=GenerationState.QUEUED,
                                        created_at__lt=generation.created_at)
    return earlier.exclude(pk=generation.pk).count()  # SQLite's clock writes 3 decimals, and compares them with 6


def queue_lengths(version_pks: Iterable[int]) -> dict[int, int]:
    """How many generations wait for a worker, by version; versions without any are left out."""
    rows = Generation.objects.filter(version__in=list(version_pks), state=GenerationState.QUEUED)
    return dict(rows.order_by().values_list("version").annotate(Count("pk")))
