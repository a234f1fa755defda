"""What the live parts of the registry's pages are rendered with: machines, models, deployments and imports as shown."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.utils import timezone

from registry import overview
from registry.access import is_administrator
from registry.services.import_jobs import import_for
from webapp.catalog.experts import expert_heat
from webapp.catalog.rates import Rates
from webapp.catalog.shown import DeploymentView, deployment_view, engine_view
from webapp.serving.selectors import queue_lengths

if TYPE_CHECKING:
    from registry.models import Node, Version

ALIVE = timedelta(seconds=15)
Context = dict[str, Any]
Args = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class MemoryBar:
    """A device's memory in parts of its width, 0 to 100, left to right."""

    total: int
    weights: int
    kv: int
    kv_used: int
    other: int
    free: int

    def _share(self, value: int) -> float:
        return round(100 * value / self.total, 3) if self.total else 0

    @property
    def segments(self) -> list[tuple[str, float, float]]:
        """Each part as (name, x, width); what is used of the KV cache is drawn over it."""
        weights, kv = self._share(self.weights), self._share(self.kv)
        return [("weights", 0, weights), ("kv", weights, kv), ("kv-used", weights, self._share(self.kv_used)),
                ("other", weights + kv, self._share(self.other))]


@dataclass(kw_only=True)
class NodeView:
    """A machine, what it holds and how its memory is used."""

    node: "Node"
    alive: bool
    deployments: list[DeploymentView] = field(default_factory=list)
    memory: MemoryBar | None = None


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    """A model in the catalog: the row, and its deployments as shown, nearest to answering first."""

    row: overview.ModelRow
    loads: list[DeploymentView]


def list_context(viewer: User, args: Args, rates: Rates) -> Context:
    """Return one page of the catalog, narrowed by q (words), kind and status."""
    filters = {name: args.get(name, "")[:200] for name in ("q", "kind", "status")}
    page, rows = overview.models_page(viewer=viewer, search=filters["q"], kind=filters["kind"],
                                      status=filters["status"], page=args.get("page", "1"))
    lines = [ModelLine(row=row, loads=sorted(map(deployment_view, row.deployments), key=_nearest)) for row in rows]
    return {"models_page": page, "lines": lines, "filters": filters, "filtered": any(filters.values()),
            "query": urlencode({name: value for name, value in filters.items() if value}),
            "administrator": is_administrator(viewer)}


def _nearest(view: DeploymentView) -> int:
    return ("loaded", "loading", "unloading", "failed", "unloaded").index(view.state)


@dataclass(frozen=True, kw_only=True)
class VersionLine:
    """A version in its model's list, with its deployments as shown."""

    version: "Version"
    loads: list[DeploymentView]


def model_context(viewer: User, args: Args, rates: Rates) -> Context:
    """Return a model's versions, aliases and history; args: name."""
    model = overview.model_visible(viewer=viewer, name=args.get("name", ""))
    versions = overview.model_versions(viewer=viewer, model=model)
    loads: dict[int, list[DeploymentView]] = {version.pk: [] for version in versions}
    for row in overview.deployments_active().filter(version__in=loads):
        loads[row.version_id].append(deployment_view(row))
    administrator = is_administrator(viewer)
    shown = [version for version in versions if version.state != "deleted" or administrator]
    return {
        "model": model,
        "lines": [VersionLine(version=version, loads=loads[version.pk]) for version in shown],
        "ready": [version for version in versions if version.state == "ready"],
        "aliases": [alias for alias in overview.model_aliases(model=model) if alias.version_id in loads],
        "history": overview.history(model=model) if administrator else [],
        "administrator": administrator,
    }


def version_context(viewer: User, args: Args, rates: Rates) -> Context:
    """Return what of a version changes: state, aliases, deployments, checks, history; args: name, number."""
    number = args.get("number", "")
    version = overview.version_visible(viewer=viewer, name=args.get("name", ""),
                                       number=int(number) if number.isdecimal() and len(number) < 10 else 0)
    engine = engine_view(version.pk, rates)
    queued = queue_lengths([version.pk]).get(version.pk, 0)
    rows = overview.version_deployments(version=version)
    administrator = is_administrator(viewer)
    return {
        "version": version,
        "aliases": list(version.aliases.all()),
        "deployments": [deployment_view(row, engine=engine, queued=queued) for row in rows],
        "checks": version.checks.get("results", []),
        "not_run": version.checks.get("not_run", []),
        "history": overview.history(version=version) if administrator else [],
        "heat": expert_heat(version.pk),
        "administrator": administrator,
    }


IMPORT_PHASES = {"copying": "Copying and hashing", "receiving": "Putting the chunks together", "unpacking": "Unpacking",
                 "verifying": "Checking", "publishing": "Storing"}


def import_context(viewer: User, args: Args, rates: Rates) -> Context:
    """Return how far an import is, its checks and, once it has passed them, its version; args: pk."""
    try:
        pk = uuid.UUID(args.get("pk", ""))
    except ValueError:
        raise ObjectDoesNotExist from None
    job = import_for(viewer=viewer, pk=pk)
    running = job.state in ("queued", "running")
    version = job.version
    report = (version.checks if version and version.checks else job.checks) or {}
    step = 5 if version and version.state == "ready" else 3 if job.state == "done" else 2
    return {
        "job": job, "version": version, "running": running, "step": step,
        "words": IMPORT_PHASES.get(job.phase, job.phase.capitalize()) if job.phase else "Waiting for a worker",
        "fraction": min(1.0, job.progress_done / job.progress_total) if job.progress_total > 1 else None,
        "checks": report.get("results", []), "not_run": report.get("not_run", []),
        "warnings": sum(check.get("outcome") == "warn" for check in report.get("results", [])),
    }


def workers_context(viewer: User, args: Args, rates: Rates) -> Context:
    """Return the machines, what each holds, and what no machine holds yet. Only of models that the viewer may see."""
    visible = set(overview.versions_visible(viewer=viewer).order_by().values_list("pk", flat=True))
    rows = list(overview.deployments_active())
    queued = queue_lengths({row.version_id for row in rows})
    engines = {pk: engine_view(pk, rates) for pk in {row.version_id for row in rows if row.state == "loaded"}}
    shown = [deployment_view(row, engine=engines.get(row.version_id), queued=queued.get(row.version_id, 0))
             for row in rows]
    now = timezone.now()
    machines = [NodeView(node=node, alive=now - node.seen_at < ALIVE) for node in overview.nodes()]
    by_name = {machine.node.name: machine for machine in machines}
    for view in shown:
        if view.node in by_name:
            by_name[view.node].deployments.append(view)
    for machine in machines:
        machine.memory = _memory(machine)
        machine.deployments = [view for view in machine.deployments if view.row.version_id in visible]
    elsewhere = [view for view in shown if view.node not in by_name and view.row.version_id in visible]
    return {"machines": machines, "elsewhere": elsewhere, "administrator": is_administrator(viewer)}


def _memory(machine: NodeView) -> MemoryBar | None:
    """Return how the memory of the machine's first device is used: our weights and KV, what others have, what is free.
    """
    total = machine.node.memory_bytes
    if not total:
        return None
    weights = sum(view.weights_bytes for view in machine.deployments)
    kv = sum(view.kv_bytes for view in machine.deployments)
    used = sum(int(view.kv_bytes * view.engine.kv_used) for view in machine.deployments if view.engine)
    free = min(machine.node.free_bytes, max(total - weights - kv, 0)) if machine.node.free_bytes else 0
    free = free or max(total - weights - kv, 0)
    return MemoryBar(total=total, weights=weights, kv=kv, kv_used=used, free=free,
                     other=max(total - weights - kv - free, 0))
