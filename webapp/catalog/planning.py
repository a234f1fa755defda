"""The plan on a version's page: its settings with their sliders, its arithmetic, and context against requests."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from registry import overview, plans
from registry.errors import RegistryRefused
from webapp.catalog.forms import SettingsForm, first_error

if TYPE_CHECKING:
    from inference.planner import Plan
    from registry.models import Version

DEFAULT_REQUESTS = 64
CURVE_STEPS = 24


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How many requests fit at which context, as an SVG path in a box of 100 by 40; `here` is what is planned."""

    path: str
    area: str
    here_x: float
    here_y: float
    most_context: int
    most_requests: int


def plan_context(*, version: "Version", data: Mapping[str, str]) -> dict[str, Any]:
    """Return what the plan's form and its result are rendered with; a plan that can't be made is told in words."""
    places = plans.plan_places()
    adapters = overview.version_adapters(version=version)
    form = SettingsForm(data, adapters=adapters)
    kind = version.model.kind
    context: dict[str, Any] = {
        "version": version, "places": places, "modes": plans.MODES, "devices": plans.DEVICE_KINDS,
        "adapters": list(adapters), "plan": None, "plan_error": "", "plan_form": kind != "adapter",
        "generates": kind == "chat",
    }
    if not form.is_valid():
        return context | {"plan_error": first_error(form), "values": data}
    settings = form.settings(policies=False)
    place = form.cleaned_data["place"]
    if place not in places:
        place = places[0]
    context["values"] = {
        "place": place, "mode": settings.get("mode", "int8"), "device": settings["device"],
        "max_model_len": settings["max_model_len"] or version.context_length,
        "max_num_seqs": settings.get("max_num_seqs", DEFAULT_REQUESTS),
    }
    try:
        plan = plans.version_plan(version=version, place=place, settings=settings)
    except RegistryRefused as refusal:
        return context | {"plan_error": refusal.reason}
    return context | {"plan": plan, "mixture": plan.architecture.experts > 0, "curve": curve(plan),
                      "verdict": verdict(plan),
                      "words": plans.architecture_words(plan), "facts": plans.architecture_facts(plan)}


def verdict(plan: "Plan") -> str:
    """Say "yes" for what fits as planned, "partly" where it loads with room for fewer requests, else "no"."""
    if plan.fits:
        return "yes"
    return "partly" if plan.max_concurrency >= 1 else "no"


def curve(plan: "Plan") -> Curve | None:
    """Return the trade-off of a plan: the memory that is left for KV caches, shared by requests of each length.

    None for what keeps no KV cache, or leaves no room for one.
    """
    room = plan.memory_bytes - (plan.total_bytes - plan.kv_bytes)
    if plan.kv_room_bytes is not None:
        room = min(room, plan.kv_room_bytes)
    most = plan.architecture.context or plan.context
    if plan.kv_bytes_per_request <= 0 or plan.kv_bytes_per_token <= 0 or room <= 0 or most < 2:
        return None
    fixed = max(plan.kv_bytes_per_request - plan.kv_bytes_per_token * plan.context, 0)

    def fitting(context: float) -> float:
        return room / (plan.kv_bytes_per_token * context + fixed)

    # Both axes are logarithmic: halving the context doubles the requests, along a straight line.
    low, top = max(most / 64, 1), fitting(max(most / 64, 1))
    points = [low * (most / low) ** (i / CURVE_STEPS) for i in range(CURVE_STEPS + 1)]
    floor = min(fitting(most), plan.concurrency, 1) or 1

    def x(context: float) -> float:
        return round(100 * _log_share(context, low, most), 2)

    def y(requests: float) -> float:
        return round(38 - 36 * _log_share(requests, floor, max(top, floor * 2)), 2)

    line = " L ".join(f"{x(point)} {y(fitting(point))}" for point in points)
    return Curve(path=f"M {line}", area=f"M 0 40 L {line} L 100 40 Z", here_x=x(plan.context),
                 here_y=y(plan.concurrency), most_context=most, most_requests=int(top))


def _log_share(value: float, low: float, high: float) -> float:
    """Where a value lies between two others on a logarithmic scale, from 0 to 1."""
    return min(1.0, max(0.0, math.log(max(value, low) / low) / math.log(high / low))) if high > low else 1.0
