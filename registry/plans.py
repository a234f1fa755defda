"""Plans for pages: what a version would take with which settings, on a machine that is there or on a known device."""

from collections.abc import Mapping
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.planner import DEVICES, Architecture, Device, Plan
from inference.spec import MODES as ENGINE_MODES
from inference.spec import SpecError
from registry.deployment_settings import apply_settings
from registry.errors import BlobMissing, RegistryRefused
from registry.fit import deployment_plan, device_of, node_device, nodes_alive
from registry.models import Deployment, Version

MODES: tuple[str, ...] = ENGINE_MODES
DEVICE_KINDS = [("", "Any device"), *((str(kind), str(label)) for kind, label
                                       in Deployment._meta.get_field("device").flatchoices)]
DEVICE_NAMES: tuple[str, ...] = tuple(device.name for device in DEVICES.values())


class PlanRefused(RegistryRefused):
    """Something that can't be planned: the reason names the setting or the file."""


def plan_places() -> list[str]:
    """Return where a plan may be made for: the machines that are alive, then the devices whose figures are known."""
    return [node.name for node in nodes_alive()] + list(DEVICE_NAMES)


def version_plan(*, version: Version, place: str = "", settings: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a version with these settings of a deployment.

    place: one of `plan_places`; empty or gone takes the first machine. settings: as `deployment_load` takes them.
    Raises PlanRefused.
    """
    deployment = Deployment(version=version)
    try:
        apply_settings(deployment, settings or {})
        device, free = _place(place, deployment.device)
        return deployment_plan(deployment, device, free=free)
    except (SpecError, ArtifactError, BlobMissing) as error:
        raise PlanRefused(str(error)) from None


def _place(place: str, kind: str) -> tuple[Device, int | None]:
    """Return a device and what it has free now, None for one that isn't here. Raises SpecError as node_device does."""
    nodes = nodes_alive()
    known = DEVICES.get(place.lower()) or (None if nodes else next(iter(DEVICES.values())))
    if known is not None:
        return known, None
    node = next((node for node in nodes if node.name == place), nodes[0])
    return node_device(node, kind), int(device_of(node, kind)["free_bytes"])


ATTENTION = {
    "mha": "multi-head attention: every head keeps its own keys and values",
    "gqa": "grouped-query attention: several heads share the keys and values of one",
    "mqa": "multi-query attention: all heads share one set of keys and values",
    "mla": "multi-head latent attention: keys and values are kept as one small latent a token",
    "hybrid": "some layers attend, the others carry a fixed state along",
    "none": "no attention: every layer carries a fixed state along",
}


def architecture_words(plan: Plan) -> str:
    """Return a model's shape in sentences."""
    shape = plan.architecture
    words = [f"{'An' if shape.kind == 'encoder' else 'A'} {shape.kind} of the {shape.family} family: {shape.layers} "
             f"layers of width {shape.hidden_size:,}."]
    if plan.attention != "none":
        heads = f"{shape.heads} heads of {shape.head_dim}"
        shared = f", {shape.kv_heads} for keys and values" if 0 < shape.kv_heads != shape.heads else ""
        words.append(f"{heads}{shared}; {ATTENTION[plan.attention]}.")
    if shape.sliding_layers:
        words.append(f"{shape.sliding_layers} of the layers see only the last {shape.window:,} tokens.")
    if shape.linear_layers:
        words.append(f"{shape.linear_layers} of the layers are linear.")
    words += _expert_words(shape)
    return " ".join(words)


def _expert_words(shape: Architecture) -> list[str]:
    if not shape.experts:
        return []
    return [f"{shape.mixture_layers} of the layers are mixtures of {shape.experts} experts, of which a token visits "
            f"{shape.experts_active}."]


def architecture_facts(plan: Plan) -> list[dict[str, str]]:
    """Return a model's shape as {"name", "value", "note"}, in the order in which a page shows it."""
    shape = plan.architecture
    facts = [
        ("Parameters", f"{plan.parameters_total:,}",
         f"{plan.parameters_active:,} active for a token" if plan.parameters_active != plan.parameters_total else ""),
        ("Layers", str(shape.layers), f"width {shape.hidden_size:,}"),
        ("Attention", plan.attention.upper() if plan.attention not in ("none", "hybrid") else plan.attention,
         f"{shape.heads} heads of {shape.head_dim}, {shape.kv_heads} for keys and values" if shape.heads else ""),
        ("Experts", f"{shape.experts_active} of {shape.experts}" if shape.experts else "none, all layers are dense",
         f"in {shape.mixture_layers} layers" if shape.experts else ""),
        ("Context", f"{shape.context:,} tokens" if shape.context else "not said",
         f"{shape.sliding_layers} layers with a window of {shape.window:,}" if shape.sliding_layers else ""),
        ("Precision", shape.precision, f"runs as {plan.dtype}, KV cache in {plan.kv_dtype}"),
        ("Vocabulary", f"{shape.vocabulary:,} tokens", "input and output share it" if shape.tied_embeddings else ""),
        ("KV cache", f"{plan.kv_bytes_per_token:,} bytes a token", ""),
    ]
    return [{"name": name, "value": value, "note": note} for name, value, note in facts
            if not (name == "KV cache" and plan.architecture.kind == "encoder")]
