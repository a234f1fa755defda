"""A mixture of experts in place of an MLP: the router in float32, the experts it chooses, and those that all share."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from inference.decoder_spec import DecoderSpec, MoeSpec
from inference.experts.counts import ExpertCounts
from inference.layers.experts import DenseExperts, Experts, PackedExperts, grouped_experts
from inference.layers.linear import fill, fill_bias, packed_bytes, packed_room, padded, panels_for
from inference.layers.mlp import Mlp, gate_function
from inference.layers.step import StepTensors
from inference.layers.weights import WeightLoader

WHOLE_VECTORS = 32  # elements; a multiple of what torch's kernels take at a time


def route(logits: Tensor, spec: MoeSpec, correction: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Choose each token's experts: their ids and weights, [tokens, top_k] both, weights in float32.

    logits: [tokens, experts]. correction: [experts], added to the scores for the choice only (DeepSeek-V3's noaux_tc).
    Sources: transformers' routers of the families; DeepSeek-V2 (group_limited_greedy) and V3 (noaux_tc), 2024.
    """
    logits = logits.float()
    if spec.score == "softmax_of_chosen":
        chosen, ids = logits.topk(spec.top_k, dim=-1)
        return ids, chosen.softmax(-1) * spec.scaling
    scores = _sigmoid(logits) if spec.score == "sigmoid" else logits.softmax(-1)
    for_choice = scores if correction is None else scores + correction
    if spec.groups > 1:
        for_choice = _within_best_groups(for_choice, spec)
    ids = for_choice.topk(spec.top_k, dim=-1).indices
    weights = scores.gather(-1, ids)
    if spec.norm_top_k:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return ids, weights * spec.scaling


def _within_best_groups(scores: Tensor, spec: MoeSpec) -> Tensor:
    """Return scores with -inf outside of each token's best groups of neighbouring experts. scores: [tokens, experts].

    A group is as good as the sum of its group_score_top best experts.
    """
    grouped = scores.reshape(len(scores), spec.groups, -1)  # [tokens, groups, experts of a group]
    best = grouped.topk(spec.group_score_top, dim=-1).values.sum(-1)
    kept = torch.zeros_like(best, dtype=torch.bool).scatter_(-1, best.topk(spec.top_groups, dim=-1).indices, True)
    return grouped.masked_fill(~kept[..., None], float("-inf")).reshape(scores.shape)


def _sigmoid(x: Tensor) -> Tensor:
    """Return the sigmoid of x [rows, size]. torch computes what doesn't fill a vector in another way, with other last
    bits, so rows are made to fill them: what a row gives may not depend on where in a batch it lies."""
    return F.pad(x, (0, -x.shape[-1] % WHOLE_VECTORS)).sigmoid()[..., : x.shape[-1]]


class MoeMlp:
    """Router, chosen experts and shared experts of one layer.

    experts: may be exchanged, for those of several processes. counts: where the choices are counted, if anywhere.
    """

    def __init__(self, spec: DecoderSpec, index: int, load: WeightLoader) -> None:
        assert spec.moe is not None, f"layer {index} has no experts"
        start = f"layers.{index}"
        self.spec, self.index = spec.moe, index
        self.experts = load_experts(spec, index, load)
        self.counts: ExpertCounts | None = None
        self._router = load.linear(f"{start}.router", exact=True)
        self._correction = load.tensor(f"{start}.router_correction", exact=True) if spec.moe.correction_bias else None
        self._shared = Mlp(spec, index, load, prefix="shared.") if spec.moe.shared_experts_size else None
        self._shared_gate = load.linear(f"{start}.shared_gate") if spec.moe.shared_gate else None

    def __call__(self, x: Tensor, step: StepTensors) -> Tensor:
        """Return what the experts add for x [tokens, hidden]."""
        ids, weights = route(self._router(x.float(), step), self.spec, self._correction)
        if self.counts is not None:
            self.counts.add(self.index, ids)
        added = grouped_experts(x, ids, weights, self.experts)
        if self._shared is None:
            return added
        shared = self._shared(x, step)
        if self._shared_gate is not None:
            shared = shared * _sigmoid(self._shared_gate(x, step))
        return added + shared


def load_experts(spec: DecoderSpec, index: int, load: WeightLoader) -> Experts:
    """Read those of a layer's experts that the loader keeps, for the kernels of its device."""
    assert spec.moe is not None
    held = range(spec.moe.num_experts) if load.held_experts is None else load.held_experts(index)
    return (packed_experts if load.packs else dense_experts)(spec, index, load, held)


def packed_experts(spec: DecoderSpec, index: int, load: WeightLoader, held: Sequence[int]) -> PackedExperts:
    """Read these experts of a layer for the numba kernels."""
    moe, hidden = spec.moe, spec.hidden_size
    assert moe is not None
    inner, count = padded(moe.intermediate_size), len(held)
    gate_up = packed_room(layers=count, panels=panels_for(2 * inner), inputs=hidden, mode=load.mode)
    down = packed_room(layers=count, panels=panels_for(hidden), inputs=inner, mode=load.mode)
    for room, parts in ((gate_up, ("gate", "up")), (down, ("down",))):
        for slot, expert in enumerate(held):
            for row, part in enumerate(parts):
                name = f"layers.{index}.expert.{expert}.{part}"
                fill(room, slot, load.read(f"{name}.weight"), first_output=row * inner)
                if moe.expert_bias:
                    fill_bias(room, slot, load.read(f"{name}.bias"), first_output=row * inner)
    load.nbytes += packed_bytes(gate_up) + packed_bytes(down)
    return PackedExperts(gate_up, down, gate_function(spec), hidden=hidden)


def dense_experts(spec: DecoderSpec, index: int, load: WeightLoader, held: Sequence[int]) -> DenseExperts:
    """Read these experts of a layer for torch's grouped product."""
    moe = spec.moe
    assert moe is not None

    def stacked(parts: tuple[str, ...], suffix: str) -> Tensor:
        rows = [np.concatenate([load.read(f"layers.{index}.expert.{expert}.{part}.{suffix}") for part in parts])
                for expert in held]
        values = torch.stack([torch.from_numpy(row).to(load.device, load.dtype) for row in rows])
        load.nbytes += values.nbytes
        return values

    return DenseExperts(
        stacked(("gate", "up"), "weight"), stacked(("down",), "weight"), gate_function(spec),
        gate_up_bias=stacked(("gate", "up"), "bias") if moe.expert_bias else None,
        down_bias=stacked(("down",), "bias") if moe.expert_bias else None,
    )  # fmt: skip


def count_experts(layers: Iterable[object], device: torch.device) -> ExpertCounts | None:
    """Let those of a decoder's MLPs that have experts count their choices together; None when none has."""
    mixtures = [layer for layer in layers if isinstance(layer, MoeMlp)]
    if not mixtures:
        return None
    counts = ExpertCounts([layer.index for layer in mixtures], mixtures[0].spec.num_experts, device)
    for layer in mixtures:
        layer.counts = counts
    return counts
