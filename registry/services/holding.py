"""Writes of the node that holds a deployment, guarded by its lease on the database's clock, and of nodes themselves."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from registry.models import Deployment, DeploymentState, Node

HOLD_SECONDS = 10


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
    rows.update(held_by="", held_until=None, phase="", progress_done=0, progress_total=0, force_unload=False)


def deployment_report_loading(*, pk: int, holder: str, phase: str = "", done: int = 0, total: int = 0) -> bool:
    """Say how far loading is; false when the lease is another's."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(
        state=DeploymentState.LOADING, phase=phase, progress_done=done, progress_total=total, reason="") == 1


def deployment_report_waiting(*, pk: int, holder: str) -> bool:
    """Say that it waits for its turn, or for memory to come back."""
    return deployment_report_loading(pk=pk, holder=holder, phase="waiting")


def deployment_report_kept(*, pk: int, holder: str) -> bool:
    """Say that one that was being unloaded stays loaded after all."""
    return Deployment.objects.filter(pk=pk, held_by=holder, wanted=True, state=DeploymentState.UNLOADING).update(
        state=DeploymentState.LOADED, reason="") == 1


def deployment_report_plan(*, pk: int, holder: str, plan: dict[str, Any]) -> bool:
    """Note what the planner predicts, before loading begins."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(plan=plan) == 1


def deployment_report_loaded(*, pk: int, holder: str, facts: dict[str, Any]) -> bool:
    """Say that it takes requests, with what the engine said of itself; false when the lease is another's."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(
        state=DeploymentState.LOADED, facts=facts, phase="", reason="", used_at=Now()) == 1


def deployment_report_failed(*, pk: int, holder: str, reason: str) -> bool:
    """Say why it can't be loaded. It stays so until somebody asks for it again."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(
        state=DeploymentState.FAILED, reason=reason, phase="") == 1


def deployment_report_use(*, pk: int, holder: str) -> bool:
    """Say that it has had work; about every few seconds while it has."""
    return Deployment.objects.filter(pk=pk, held_by=holder).update(used_at=Now()) == 1


def deployment_make_room(*, pk: int, holder: str, reason: str) -> bool:
    """Wish an idle deployment unloaded, because of what `reason` says; it drains like any other."""
    return Deployment.objects.filter(pk=pk, held_by=holder, state=DeploymentState.LOADED).update(
        wanted=False, reason=reason) == 1


def deployments_idle_unload(*, holder: str) -> list[int]:
    """Wish those unloaded that had no work for as long as their settings say; return their keys."""
    rows = Deployment.objects.filter(held_by=holder, wanted=True, state=DeploymentState.LOADED, used_at__isnull=False,
                                     idle_seconds__isnull=False)
    done = []
    for pk, seconds in rows.values_list("pk", "idle_seconds"):
        if rows.filter(pk=pk, used_at__lt=Now() - timedelta(seconds=seconds or 0)).update(
                wanted=False, reason=f"Unloaded after {seconds:,} seconds without work."):
            done.append(pk)
    return done


def deployments_wish_at_start(*, node: str) -> int:
    """Wish loaded what is to be loaded whenever this node starts; return how many that changed."""
    return Deployment.objects.filter(node__in=["", node], load_at_start=True, wanted=False).update(
        wanted=True, force_unload=False)


def node_report(*, name: str, host: str = "", devices: Sequence[dict[str, Any]], version: str = "",
                started: bool = False) -> None:
    """A node says that it is alive, with its devices as Node.devices has them. started: this is its first report."""
    first = devices[0]
    fresh = {"host": host, "device": first["name"], "devices": list(devices), "memory_bytes": first["memory_bytes"],
             "free_bytes": first["free_bytes"], "version": version, "seen_at": Now()}
    if started:
        fresh["started_at"] = Now()
    if not Node.objects.filter(name=name).update(**fresh):
        Node.objects.update_or_create(name=name, defaults=fresh)
