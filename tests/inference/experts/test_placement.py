"""The expert placement planner: the published example, the balance it must reach, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from inference.experts.placement import Placement, PlacementError, even_placement, main, place_experts

# The example of DeepSeek's README: two layers of 12 experts, 16 slots, 4 groups, 2 nodes, 8 GPUs.
PUBLISHED_COUNTS = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
                    [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]
PUBLISHED_SLOTS = [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
                   [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]


def test_the_published_example_gives_the_published_slots() -> None:
    plan = place_experts(PUBLISHED_COUNTS, devices=8, spare_slots=4, groups=4, nodes=2)
    assert plan.placement.slots.reshape(2, 16).tolist() == PUBLISHED_SLOTS


def _load(seed: int, shape: str) -> np.ndarray:
    """256 counts, the hottest 15 times the coldest, spread evenly or evenly in their logarithm."""
    drawn = np.random.default_rng(seed).random(256)
    drawn = (drawn - drawn.min()) / (drawn.max() - drawn.min())
    return np.round(1000 * (1 + 14 * drawn if shape == "even" else 15**drawn))


@pytest.mark.parametrize("shape", ["even", "logarithmic"])
@pytest.mark.parametrize("seed", range(5))
def test_a_load_with_a_fifteenfold_spread_is_balanced_within_five_percent(seed: int, shape: str) -> None:
    counts = _load(seed, shape)
    assert counts.max() / counts.min() == 15
    plan = place_experts(counts, devices=32, spare_slots=32)
    print(f"{shape} {seed}: {plan.before[0]:.3f} before, {plan.after[0]:.4f} after")
    assert plan.placement.slots.shape == (1, 32, 9)
    loads = np.zeros(32)  # counted again, slot by slot
    copies = np.bincount(plan.placement.slots.reshape(-1), minlength=256)
    for device, held in enumerate(plan.placement.slots[0]):
        loads[device] = sum(counts[expert] / copies[expert] for expert in held)
    assert loads.sum() == pytest.approx(counts.sum())
    assert loads.max() / loads.mean() == pytest.approx(plan.after[0])
    assert plan.after[0] <= 1.05 < plan.before[0]


def test_groups_stay_on_one_node() -> None:
    counts = np.random.default_rng(1).integers(1, 1000, (3, 64))
    plan = place_experts(counts, devices=8, spare_slots=16, groups=8, nodes=4)
    nodes = plan.placement.slots.reshape(3, 4, -1)
    for layer in nodes:
        groups = [set((held // 8).tolist()) for held in layer]
        assert all(len(held) == 2 for held in groups)
        assert len(set.union(*groups)) == 8


def test_no_load_is_balanced_and_even_placement_holds_everything() -> None:
    assert place_experts(np.zeros(8), devices=2).after.tolist() == [1.0]
    placement = even_placement(num_layers=2, num_experts=6, devices=4, spare_slots=2)
    assert placement.slots[0].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert placement.loads(np.ones((2, 6))).tolist() == [[1.0, 2.0, 2.0, 1.0]] * 2


@pytest.mark.parametrize("wanted, reason", [
    ({"devices": 3}, "shared evenly by 3 devices"),
    ({"devices": 0}, "devices must be at least 1"),
    ({"devices": 4, "nodes": 3}, "4 devices can't be shared evenly by 3 nodes"),
    ({"devices": 4, "groups": 5}, "don't fall into 5 equal groups"),
    ({"devices": 4, "spare_slots": -4}, "must not be negative"),
])  # fmt: skip
def test_what_can_not_be_placed_is_refused(wanted: dict[str, int], reason: str) -> None:
    with pytest.raises(PlacementError, match=reason):
        place_experts(np.ones(16), **wanted)


def test_counts_that_are_not_counts_are_refused() -> None:
    for counts in ([1.0, -1.0], [1.0, float("nan")], [[[1.0]]], []):
        with pytest.raises(PlacementError, match="counts must be"):
            place_experts(counts, devices=1)
    with pytest.raises(PlacementError, match="doesn't hold each"):
        Placement(num_experts=3, slots=np.array([[[0, 1, 1]]]))


def test_the_command_reads_counts_or_a_load_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "counts.json"
    load = {"layers": [0, 1], "counts": PUBLISHED_COUNTS, "tokens": 9}
    for content in (PUBLISHED_COUNTS, load, {"text": "", "experts": load}):
        path.write_text(json.dumps(content))
        assert main([str(path), "--devices", "8", "--spare-slots", "4", "--groups", "4", "--nodes", "2"]) == 0
        assert np.array(json.loads(capsys.readouterr().out)["slots"]).reshape(2, 16).tolist() == PUBLISHED_SLOTS
    for content, reason in (("[1, 2", "can't be read as JSON"), ('[[1], [1, 2]]', "as many counts"),
                            ('["a"]', "must be numbers"), ("{}", "holds no counts")):
        path.write_text(content)
        assert main([str(path), "--devices", "1"]) == 2
        assert reason in capsys.readouterr().err
