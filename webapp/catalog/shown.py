"""Deployments and engines as the registry's pages show them: states in words, progress, what an engine does now."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from webapp.catalog.rates import KEPT, Rates
from webapp.serving.stats import engine_stats

if TYPE_CHECKING:
    from inference.protocol import Stats
    from registry.models import Deployment

PHASES = {"reading": "Reading the weights", "packing": "Packing the weights", "warming": "Warming up",
          "compiling": "Compiling kernels", "fetching": "Fetching the files"}


@dataclass(frozen=True, kw_only=True)
class DeploymentView:
    """A deployment as shown. state: what it is on the way to, where its node has gone; fraction: of loading, or None.

    weights_bytes and kv_bytes: as measured by the engine. kv_used: share of KV blocks that requests hold, 0 to 1.
    """

    row: "Deployment"
    state: str
    words: str
    node: str = ""
    fraction: float | None = None
    weights_bytes: int = 0
    kv_bytes: int = 0
    engine: "EngineView | None" = None
    queued: int = 0
    measured: list["Compared"] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A part of a loaded version's memory: as the plan predicted it and as the engine measured it, in bytes."""

    name: str
    predicted: int | None
    measured: int | None


@dataclass(frozen=True, kw_only=True)
class EngineView:
    """What the engines of a version do right now, taken together. rates: output tokens/s, oldest first."""

    running: int
    waiting: int
    held_blocks: int
    cached_blocks: int
    total_blocks: int
    preemptions: int
    rates: list[float]

    @property
    def rate(self) -> float | None:
        return self.rates[-1] if self.rates else None

    @property
    def kv_used(self) -> float:
        return self.held_blocks / self.total_blocks if self.total_blocks else 0.0

    @property
    def points(self) -> str:
        """The rates as the points of an SVG polyline in a box of 60 by 20."""
        top = max([*self.rates, 1.0])
        start = KEPT - len(self.rates)
        return " ".join(f"{start + i},{19 - 18 * value / top:.1f}" for i, value in enumerate(self.rates))


def shown_state(row: "Deployment") -> str:
    """Return the state of a deployment as people should read it: one whose node is gone is on its way again."""
    if row.state in ("loaded", "loading") and not getattr(row, "live", False):
        return "loading" if row.wanted else "unloaded"
    if row.state == "unloaded" and row.wanted:
        return "loading"
    return row.state


def deployment_view(row: "Deployment", *, engine: EngineView | None = None, queued: int = 0) -> DeploymentView:
    state = shown_state(row)
    node = row.held_by.partition("#")[0] if getattr(row, "live", False) else ""
    total = row.progress_total
    fraction = min(1.0, row.progress_done / total) if state == "loading" and total > 1 else None
    loaded = state == "loaded"
    return DeploymentView(
        row=row, state=state, words=_state_words(row, state, node), node=node, fraction=fraction,
        weights_bytes=row.facts.get("weights_bytes", 0), kv_bytes=row.facts.get("kv_cache_bytes", 0),
        engine=engine if loaded else None, queued=queued, measured=_measured(row) if loaded else [])


def _measured(row: "Deployment") -> list[Compared]:
    """Hold what the engine measured against what was planned for it."""
    plan, facts = row.plan, row.facts
    kv = facts.get("kv_cache_bytes")
    lines = [
        Compared(name="Weights", predicted=plan.get("weights_bytes"), measured=facts.get("weights_bytes")),
        Compared(name="KV cache", predicted=plan.get("kv_bytes"), measured=kv),
        Compared(name="The process, before its KV cache is written", measured=facts.get("resident_bytes"),
                 predicted=plan["total_bytes"] - plan["kv_bytes"] if plan else None),
    ]
    return [line for line in lines if line.measured]


def _state_words(row: "Deployment", state: str, node: str) -> str:
    where = f" on {node}" if node else ""
    match state:
        case "loaded":
            return f"Loaded{where}"
        case "loading" if not node:
            return f"Waiting for {row.node}" if row.node else "Waiting for a machine"
        case "loading":
            return f"{PHASES.get(row.phase, row.phase or 'Starting')}{where}"
        case "unloading":
            return f"Unloading{where}"
        case "failed":
            return "Failed to load"
    return "Not loaded"


def engine_view(version_pk: int, rates: Rates) -> EngineView | None:
    """Return what the version's engines say right now; None when none says anything, or Redis is away."""
    try:
        found: list[Stats] = engine_stats(version_pk)
    except RedisError:
        return None
    if not found:
        return None
    return EngineView(
        running=sum(stats.running for stats in found), waiting=sum(stats.waiting for stats in found),
        held_blocks=sum(stats.held_blocks for stats in found),
        cached_blocks=sum(stats.cached_blocks for stats in found),
        total_blocks=sum(stats.total_blocks for stats in found),
        preemptions=sum(stats.preemptions for stats in found),
        rates=rates.note(version_pk, sum(stats.output_tokens for stats in found)))
