"""Writes on deployments: what people wish, and what the node that holds one reports, guarded by its lease."""

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from inference.spec import MODES, Mode, SpecError
from registry.models import Deployment, DeploymentState, Node, Version

HOLD_SECONDS = 10


def deployment_ensure(*, version: Version, mode: Mode | None = None, node: str = "", max_model_len: int | None = None,
                      max_num_seqs: int | None = None) -> Deployment:
    """Wish that the version be loaded; None leaves a setting as it is. An earlier failure is forgotten and tried again.

    A loaded version whose settings change is loaded anew. Raises SpecError.
    """
    if mode is not None and mode not in MODES:
        raise SpecError("mode", f"must be one of {', '.join(MODES)}")
    settings = {"mode": mode, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs}
    changes: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    with transaction.atomic():
        deployment, _ = Deployment.objects.get_or_create(version=version, node=node, defaults=changes)
        failed = deployment.state == DeploymentState.FAILED
        if failed:
            changes |= {"state": DeploymentState.UNLOADED, "reason": "", "phase": ""}
        Deployment.objects.filter(pk=deployment.pk).update(wanted=True, **changes)
    deployment.refresh_from_db()
    return deployment


def deployment_unload(*, deployment: Deployment) -> None:
    """Wish that it be unloaded; the node that holds it ends the engine."""
    rows = Deployment.objects.filter(pk=deployment.pk)
    rows.update(wanted=False)
    rows.filter(state=DeploymentState.FAILED).update(state=DeploymentState.UNLOADED, reason="")
    rows.filter(Q(held_until=None) | Q(held_until__lt=Now())).update(state=DeploymentState.UNLOADED)


def deployment_hold(*, pk: int, holder: str, replaces: str) -> bool:
    """Take or renew the lease on a wanted deployment; false when another node has it.

    holder: `<node>#<run>`. replaces: a prefix of holders that are known to be gone, as `<node>#` after a restart.
    """
    free = Q(held_by="") | Q(held_until=None) | Q(held_until__lt=Now()) | Q(held_by=holder)
    rows = Deployment.objects.filter(free | Q(held_by__startswith=replaces), pk=pk, wanted=True)
    return rows.update(held_by=holder, held_until=Now() + timedelta(seconds=HOLD_SECONDS)) == 1


def deployment_keep(*, pk: int, holder: str) -> bool:
    """Renew the lease of one that is being unloaded, which `deployment_hold` no longer takes."""
    rows = Deployment.objects.filter(pk=pk, held_by=holder)
    return rows.update(held_until=Now() + timedelta(seconds=HOLD_SECONDS), state=DeploymentState.UNLOADING) == 1


def deployment_release(*, pk: int, holder: str) -> None:
    """Let go of it: nothing of it runs here any more. A failure stays on show."""
    rows = Deployment.objects.filter(pk=pk, held_by=holder)
    rows.exclude(state=DeploymentState.FAILED).update(state=DeploymentState.UNLOADED)
    rows.update(held_by="", held_until=None, phase="", progress_done=0, progress_total=0)


def deployment_report_loading(*, pk: int, holder: str, phase: str = "", done: int = 0, total: int = 0) -> bool:
    """Say how far loading is; false when the lease is another's."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(
        state=DeploymentState.LOADING, phase=phase, progress_done=done, progress_total=total, reason="") == 1


def deployment_report_loaded(*, pk: int, holder: str, facts: dict[str, Any]) -> bool:
    """Say that it takes requests, with what the engine said of itself; false when the lease is another's."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(
        state=DeploymentState.LOADED, facts=facts, phase="", reason="") == 1


def deployment_report_failed(*, pk: int, holder: str, reason: str) -> bool:
    """Say why it can't be loaded. It stays so until somebody asks for it again."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(
        state=DeploymentState.FAILED, reason=reason, phase="") == 1


def node_report(*, name: str, device: str, memory_bytes: int) -> None:
    """A node says that it is alive."""
    fresh = {"device": device, "memory_bytes": memory_bytes, "seen_at": Now()}
    if not Node.objects.filter(name=name).update(**fresh):
        Node.objects.update_or_create(name=name, defaults=fresh)
