"""Places experts on devices by their load, hot ones several times: `python -m inference.experts.placement COUNTS`.

The algorithm is DeepSeek's published expert-parallelism load balancer (github.com/deepseek-ai/EPLB): replicate the
experts with the most load per copy, then pack all copies, heaviest first, on the device with the least load so far.
With nodes and groups it first packs expert groups on nodes, so that group-limited routing stays within few nodes.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

MOST_SLOTS = 1 << 20  # of all layers; more is a slip in the counts file


class PlacementError(ValueError):
    """Counts, devices or slots with which no placement exists; the message names which."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Which expert each slot holds. slots: [layers, devices, slots per device], ids of experts.

    An expert may be in several slots; its tokens are shared evenly among them. Raises PlacementError.
    """

    num_experts: int
    slots: Int64

    def __post_init__(self) -> None:
        _require(self.slots.ndim == 3, "slots must be layers by devices by slots of a device")
        for layer, held in enumerate(self.slots.reshape(len(self.slots), -1)):
            present = np.unique(held)
            _require(bool(np.array_equal(present, np.arange(self.num_experts))),
                     f"layer {layer} doesn't hold each of the experts 0 to {self.num_experts - 1}, or holds others")

    @property
    def num_layers(self) -> int:
        return int(self.slots.shape[0])

    @property
    def num_devices(self) -> int:
        return int(self.slots.shape[1])

    @property
    def slots_per_device(self) -> int:
        return int(self.slots.shape[2])

    def copies(self) -> Int64:
        """Return how many slots hold each expert, [layers, experts]."""
        layers = np.arange(self.num_layers)[:, None, None]
        counts = np.zeros((self.num_layers, self.num_experts), np.int64)
        np.add.at(counts, (layers, self.slots), 1)
        return counts

    def loads(self, counts: npt.ArrayLike) -> Float64:
        """Return each device's load, [layers, devices], under such counts, [layers, experts]."""
        per_copy = np.asarray(counts, np.float64) / self.copies()
        layers = np.arange(self.num_layers)[:, None, None]
        loads: Float64 = per_copy[layers, self.slots].sum(-1)
        return loads

    def imbalance(self, counts: npt.ArrayLike) -> Float64:
        """Return the load of the fullest device over the mean, [layers]; 1 is perfect, also without any load."""
        loads = self.loads(counts)
        mean = loads.mean(-1)
        ratio: Float64 = np.divide(loads.max(-1), mean, out=np.ones(len(loads)), where=mean > 0)
        return ratio


@dataclass(frozen=True, kw_only=True)
class PlacementPlan:
    """A placement for certain counts, and max over mean of the devices' loads, [layers], before and after it.

    before: of the experts in order, as many on each device, none twice.
    """

    placement: Placement
    before: Float64
    after: Float64

    def to_dict(self) -> dict[str, Any]:
        return {"slots": self.placement.slots.tolist(), "copies": self.placement.copies().tolist(),
                "imbalance_before": self.before.round(4).tolist(), "imbalance_after": self.after.round(4).tolist()}


def place_experts(
    counts: npt.ArrayLike, *, devices: int, spare_slots: int = 0, groups: int = 1, nodes: int = 1
) -> PlacementPlan:
    """Return where the experts of each layer go, and the balance before and after.

    counts: [layers, experts] or [experts], tokens routed to each. spare_slots: slots beyond one for each expert, over
    all devices. groups: equal groups of neighbouring experts, kept within a node where the nodes share them evenly.
    nodes: equal groups of neighbouring devices. Raises PlacementError.
    """
    weights = np.atleast_2d(np.asarray(counts, np.float64))
    _check(weights, devices=devices, spare_slots=spare_slots, groups=groups, nodes=nodes)
    num_experts = weights.shape[1]
    if groups % nodes:  # the published rule: without whole groups a node, place globally
        groups, nodes = 1, 1
    slots = np.stack([_place_layer(layer, devices, num_experts + spare_slots, groups, nodes) for layer in weights])
    placement = Placement(num_experts=num_experts, slots=slots)
    return PlacementPlan(placement=placement, before=_imbalance_in_order(weights, devices),
                         after=placement.imbalance(weights))


def even_placement(*, num_layers: int, num_experts: int, devices: int, spare_slots: int = 0) -> Placement:
    """Return the placement before any counts: experts in order, the spare slots holding the first ones again."""
    _check(np.ones((num_layers, num_experts)), devices=devices, spare_slots=spare_slots, groups=1, nodes=1)
    held = np.arange(num_experts + spare_slots) % num_experts
    slots = np.broadcast_to(held.reshape(devices, -1), (num_layers, devices, held.size // devices))
    return Placement(num_experts=num_experts, slots=slots.astype(np.int64))


def _place_layer(weights: Float64, devices: int, num_slots: int, groups: int, nodes: int) -> Int64:
    """Return the experts of each device's slots, [devices, slots per device]. weights: [experts]."""
    group_size = weights.size // groups
    node_groups = _pack(weights.reshape(groups, group_size).sum(-1), nodes)  # [nodes, groups a node]
    placed = []
    for held in node_groups:
        experts = (held[:, None] * group_size + np.arange(group_size)).reshape(-1)
        copies = _replicate(weights[experts], num_slots // nodes)  # [slots of the node], indexes into experts
        share = weights[experts] / np.bincount(copies, minlength=experts.size)
        placed.append(experts[copies[_pack(share[copies], devices // nodes)]])
    return np.concatenate(placed).astype(np.int64)


def _replicate(weights: Float64, num_slots: int) -> Int64:
    """Return the expert of each slot, [num_slots]: one for each, then again for the most load per copy."""
    held = np.arange(num_slots)
    copies = np.ones(weights.size)
    for slot in range(weights.size, num_slots):
        held[slot] = np.argmax(weights / copies)
        copies[held[slot]] += 1
    return held.astype(np.int64)


def _pack(weights: Float64, packs: int) -> Int64:
    """Return equally many items for each pack, [packs, items a pack], the packs' sums about equal.

    Heaviest first, each into the lightest pack with room, the first of them on a tie.
    """
    size = weights.size // packs
    if size == 1:
        return np.arange(packs, dtype=np.int64)[:, None]
    packed = np.zeros((packs, size), np.int64)
    sums, filled = np.zeros(packs), np.zeros(packs, np.int64)
    for item in np.argsort(-weights, kind="stable"):
        pack = np.argmin(np.where(filled < size, sums, np.inf))
        packed[pack, filled[pack]] = item
        sums[pack] += weights[item]
        filled[pack] += 1
    return packed


def _imbalance_in_order(weights: Float64, devices: int) -> Float64:
    loads = np.stack([part.sum(-1) for part in np.array_split(weights, devices, axis=1)], axis=-1)
    mean = loads.mean(-1)
    ratio: Float64 = np.divide(loads.max(-1), mean, out=np.ones(len(loads)), where=mean > 0)
    return ratio


def _check(weights: Float64, *, devices: int, spare_slots: int, groups: int, nodes: int) -> None:
    _require(weights.ndim == 2 and weights.size > 0, "counts must be a table of layers by experts")
    _require(bool(np.isfinite(weights).all() and (weights >= 0).all()), "counts must be finite and not negative")
    experts = weights.shape[1]
    for name, value in (("devices", devices), ("groups", groups), ("nodes", nodes)):
        _require(value >= 1, f"{name} must be at least 1")
    _require(spare_slots >= 0, "spare_slots must not be negative")
    slots = experts + spare_slots
    _require(slots * len(weights) <= MOST_SLOTS, f"more than {MOST_SLOTS:,} slots in all")
    _require(slots % devices == 0,
             f"{experts} experts and {spare_slots} spare slots can't be shared evenly by {devices} devices")
    _require(devices % nodes == 0, f"{devices} devices can't be shared evenly by {nodes} nodes")
    _require(experts % groups == 0, f"{experts} experts don't fall into {groups} equal groups")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise PlacementError(message)


def _read_counts(path: Path) -> list[list[float]]:
    """Read [layers, experts] from a JSON list, or from an engine's expert load or reply. Raises PlacementError."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PlacementError(f"{path.name} can't be read as JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("experts"), dict):
        value = value["experts"]  # of a reply
    if isinstance(value, dict):
        value = value.get("counts")
    if not isinstance(value, list) or not value:
        raise PlacementError(f"{path.name} holds no counts")
    rows = value if isinstance(value[0], list) else [value]
    sizes = {len(row) if isinstance(row, list) else -1 for row in rows}
    _require(len(sizes) == 1 and min(sizes) > 0, f"{path.name}: each layer must be a list of as many counts")
    numbers = all(isinstance(count, (int, float)) and not isinstance(count, bool) for row in rows for count in row)
    _require(numbers, f"{path.name}: the counts must be numbers")
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Print the plan for a file of counts as JSON; a refusal goes to standard error, with exit status 2."""
    parser = argparse.ArgumentParser(prog="python -m inference.experts.placement", description=__doc__)
    parser.add_argument("counts", type=Path, help="JSON: layers by experts, or what inference.generate --json says")
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--spare-slots", type=int, default=0, help="slots beyond one for each expert")
    parser.add_argument("--groups", type=int, default=1, help="groups of experts that routing keeps together")
    parser.add_argument("--nodes", type=int, default=1)
    given = parser.parse_args(arguments)
    try:
        plan = place_experts(_read_counts(given.counts), devices=given.devices, spare_slots=given.spare_slots,
                             groups=given.groups, nodes=given.nodes)
    except PlacementError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(plan.to_dict()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
