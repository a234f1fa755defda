"""Whether a deployment fits a machine: the plan's arithmetic against what is free and what idle models could free."""

import functools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models.functions import Now
from django.template.defaultfilters import filesizeformat

from inference.artifacts.errors import ArtifactError
from inference.planner import Device, KvRoom, ModelOnDisk, Plan, plan, plan_cpu_engine, read_model
from inference.spec import EngineConfig, SpecError
from registry.deployment_settings import engine_arguments
from registry.errors import BlobMissing, LoadRefused
from registry.models import Deployment, DeploymentState, Kind, Node
from registry.selectors import version_folder

logger = logging.getLogger(__name__)
ALIVE_SECONDS = 15
IDLE_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a load needs at least, and what there is. Bytes; needed: all but the KV of more than one full request.

    evictable: idle deployments that would be unloaded for it, least recently used first.
    """

    plan: Plan
    needed: int
    free: int
    evictable: tuple[Deployment, ...] = ()

    @property
    def fits_now(self) -> bool:
        return self.needed <= self.free

    @property
    def fits(self) -> bool:
        return self.needed <= self.free + sum(map(held_bytes, self.evictable))

    def refusal(self, deployment: Deployment, where: str) -> LoadRefused:
        """What to say when it doesn't fit, with the arithmetic and what would help."""
        idle = sum(map(held_bytes, self.evictable))
        words = [f"{deployment.version} does not fit on {where}: it needs at least {filesizeformat(self.needed)}, and "
                 f"{filesizeformat(self.free)} are free" + (f", {filesizeformat(idle)} more after unloading what is "
                                                            "idle." if idle else "."), *self.plan.reasons]
        return LoadRefused(" ".join(words), lines=self.plan.to_dict()["lines"])


def deployment_plan(deployment: Deployment, device: Device, *, free: int | None = None) -> Plan:
    """Return the planner's view of a deployment on a device: of our own CPU engine where that serves the model.

    free: bytes that the device has free now, of which a KV cache without a set size gets its part; None: all it has.
    Raises SpecError, ArtifactError; BlobMissing when the content isn't on this machine.
    """
    version = deployment.version
    folder = version_folder(version)
    model = _read(folder, folder.stat().st_mtime_ns if folder.exists() else 0)
    context = deployment.max_model_len or version.context_length or None
    if device.kind == "cpu":
        config = EngineConfig(model="any", **engine_arguments(deployment))
        return plan_cpu_engine(model.config, engine=config, device=device, context=context, stored=model.stored,
                               free_bytes=free, threads=settings.PARLEY_ENGINE_THREADS or os.cpu_count() or 1)
    chats = version.model.kind == Kind.CHAT
    dtype = None if not chats else "float32" if deployment.mode == "float32" else "bfloat16"  # as the engine has it
    return plan(model.config, device=device, context=context, concurrency=deployment.max_num_seqs if chats else 1,
                stored=model.stored, dtype=dtype, kv_dtype=deployment.kv_dtype or None,
                room=KvRoom(set_bytes=deployment.kv_cache_bytes, free_bytes=free))


@functools.lru_cache(maxsize=64)
def _read(folder: Path, made: int) -> ModelOnDisk:
    """Read the headers of a version's files once: they don't change, but a folder may be made anew (`made`)."""
    return read_model(folder)


def device_of(node: Node, wanted: str = "") -> dict[str, Any]:
    """Return the device of a machine that a deployment would be loaded on: the first, or the first of a kind.

    Raises SpecError when the machine has none of that kind.
    """
    for device in node.devices:
        if wanted in ("", device["kind"]):
            found: dict[str, Any] = device
            return found
    raise SpecError("device", f"{node.name} has no {wanted or 'device'}")


def node_device(node: Node, wanted: str = "", *, memory_bytes: int | None = None) -> Device:
    """Return a machine's device for the planner, with its memory or the given part of it. Raises SpecError."""
    found = device_of(node, wanted)
    return Device(name=found["name"], kind=found["kind"], memory_bytes=max(1, memory_bytes or found["memory_bytes"]),
                  bandwidth=found.get("bandwidth", 0.0), flops=found.get("flops", {}))


def fit_if_known(deployment: Deployment, node: Node, *, evictable: Sequence[Deployment] = ()) -> Fit | None:
    """Do as deployment_fit; None for what the planner can't plan, such as an architecture that it doesn't know."""
    try:
        return deployment_fit(deployment, node, evictable=evictable)
    except (SpecError, ArtifactError, BlobMissing) as error:
        logger.info("%s has no plan: %s", deployment.version, error)
        return None


def deployment_fit(deployment: Deployment, node: Node, *, evictable: Sequence[Deployment] = ()) -> Fit:
    """Hold a deployment against what a machine has free now. Raises SpecError, ArtifactError, BlobMissing."""
    free = int(device_of(node, deployment.device)["free_bytes"])
    budget = free + sum(map(held_bytes, evictable))
    found = deployment_plan(deployment, node_device(node, deployment.device, memory_bytes=budget), free=budget)
    one_request = found.kv_bytes_per_request
    kv = deployment.kv_cache_bytes if deployment.kv_cache_bytes is not None else one_request
    needed = found.total_bytes - found.kv_bytes + kv
    return Fit(plan=found, needed=needed, free=free, evictable=tuple(evictable))


def held_bytes(deployment: Deployment) -> int:
    """Return what a loaded deployment holds: as its engine measured it, else as it was planned.

    Where PARLEY_MODEL_MEMORY deals memory out, at least what it was let in for: that is what its end gives back.
    """
    measured = deployment.facts.get("resident_bytes") or (
        deployment.facts.get("weights_bytes", 0) + deployment.facts.get("kv_cache_bytes", 0))
    planned = int(deployment.plan.get("needed_bytes", 0))
    return max(int(measured), planned) if settings.PARLEY_MODEL_MEMORY or not measured else int(measured)


def nodes_alive() -> list[Node]:
    """Return the machines that reported themselves in the last seconds."""
    return list(Node.objects.filter(seen_at__gte=Now() - timedelta(seconds=ALIVE_SECONDS)))


def idle_deployments(node: Node) -> list[Deployment]:
    """Return what a machine holds loaded and may unload for another: without work, least recently used first.

    Those that are to be loaded at every start are kept, and so is what has just been loaded or used.
    """
    rows = Deployment.objects.select_related("version__model").filter(
        state=DeploymentState.LOADED, wanted=True, load_at_start=False, held_by__startswith=f"{node.name}#",
        used_at__lt=Now() - timedelta(seconds=IDLE_SECONDS))
    return list(rows.order_by("used_at"))


def require_fit(deployment: Deployment) -> None:
    """Refuse a load that no machine which may hold it can take now. Raises LoadRefused, with the plan's arithmetic.

    Without a machine that is alive nothing is known, and the node worker decides when it comes; what the planner can't
    plan (an architecture that it doesn't know) is left to the engine.
    """
    refusals = []
    for node in nodes_alive():
        if deployment.node not in ("", node.name) and not deployment.node.startswith(f"{node.name}-"):
            continue
        fit = fit_if_known(deployment, node, evictable=idle_deployments(node))
        if fit is None or fit.fits:
            return
        refusals.append(fit.refusal(deployment, node.name))
    if refusals:
        raise refusals[0]
