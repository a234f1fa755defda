"""Selectors of deployments: what is loaded, loading, failed, and which of it a node has to care for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from registry.models import Deployment, DeploymentState, Version

LoadState = Literal["loaded", "loading", "unloaded", "failed", "unloading"]


class LoadProgress(TypedDict):
    """Progress of a load: bytes, or kernels in the phase `warming`."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class VersionLoad:
    """How far a version is from answering, over all of its deployments.

    limit: most tokens of prompt and reply together. wanted: some deployment is to be loaded.
    """

    state: LoadState
    reason: str = ""
    progress: LoadProgress | None = None
    limit: int = 0
    wanted: bool = False


_BEST_FIRST = (DeploymentState.LOADED, DeploymentState.LOADING, DeploymentState.UNLOADING, DeploymentState.FAILED,
               DeploymentState.UNLOADED)


def version_loads(versions: Iterable[Version]) -> dict[int, VersionLoad]:
    """The load of each version, by its primary key."""
    wanted = {version.pk: version for version in versions}
    rows: dict[int, list[Deployment]] = {pk: [] for pk in wanted}
    live = Q(held_until__gte=Now())
    for row in Deployment.objects.filter(version__in=wanted).annotate(live=live):
        rows[row.version_id].append(row)
    return {pk: _load(version, rows[pk]) for pk, version in wanted.items()}


def version_load(version: Version) -> VersionLoad:
    """The load of one version."""
    return version_loads([version])[version.pk]


def _load(version: Version, rows: list[Deployment]) -> VersionLoad:
    """Take the deployment that is nearest to answering. One whose node is gone counts as being on its way again."""
    best: tuple[int, Deployment, str] | None = None
    for row in rows:
        state = row.state
        if state in (DeploymentState.LOADED, DeploymentState.LOADING) and not getattr(row, "live", False):
            state = DeploymentState.LOADING if row.wanted else DeploymentState.UNLOADED
        elif state == DeploymentState.UNLOADED and row.wanted:
            state = DeploymentState.LOADING
        rank = _BEST_FIRST.index(DeploymentState(state))
        if best is None or rank < best[0]:
            best = (rank, row, state)
    limits = [version.context_length]
    limits += [row.max_model_len or row.facts.get("max_model_len", 0) for row in rows if row.wanted]
    limit = min((value for value in limits if value), default=0)
    if best is None:
        return VersionLoad(state="unloaded", limit=limit)
    _, row, state = best
    progress: LoadProgress | None = None
    if state == DeploymentState.LOADING:
        progress = {"phase": row.phase, "done": row.progress_done, "total": row.progress_total}
    reason = row.reason if state == DeploymentState.FAILED else ""
    return VersionLoad(state=state, reason=reason, progress=progress, limit=limit,  # type: ignore[arg-type]
                       wanted=any(row.wanted and row.state != DeploymentState.FAILED for row in rows))


def adapters_loaded(adapters: Iterable[Version]) -> set[tuple[int, int]]:
    """Which of these adapters are loaded, and beside which version: primary keys of version and adapter."""
    rows = Deployment.objects.filter(state=DeploymentState.LOADED, held_until__gte=Now(), adapters__in=list(adapters))
    return set(rows.values_list("version_id", "adapters"))


def deployments_for_node(*, node: str, holder: str, version: Version | None = None) -> QuerySet[Deployment]:
    """What a node may hold or holds: wanted by it or by any machine, and whatever it still has in its hands."""
    rows = Deployment.objects.select_related("version__model").filter(
        Q(wanted=True, node__in=["", node]) | Q(held_by=holder))
    return rows.filter(version=version) if version is not None else rows
