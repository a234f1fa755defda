"""The experts of one layer, run for all tokens of a step together: grouped by expert, in the kernel of the device.

A step's (token, expert) pairs are sorted by expert, so that each expert's tokens are neighbouring rows and all experts
are one grouped product. No loop runs over experts per token, and experts without tokens cost nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from inference.kernels.grouped import combine_rows, multiply_groups
from inference.kernels.linear import Packed

Gate = Callable[[Tensor, Tensor], Tensor]
"""The activation between an expert's projections: a function of gate and up, [rows, I] each."""


@dataclass(frozen=True)
class ExpertGroups:
    """A step's (token, expert) pairs, sorted by expert.

    places: [tokens, k], the sorted row of each pair. token: [pairs], the token of each sorted row.
    expert: [pairs], sorted. starts: [experts + 1], where each expert's rows begin.
    """

    places: Tensor
    token: Tensor
    expert: Tensor
    starts: Tensor

    @staticmethod
    def of(ids: Tensor, num_experts: int) -> "ExpertGroups":
        """Sort the chosen experts, [tokens, k]."""
        expert, order = ids.reshape(-1).sort(stable=True)
        places = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=ids.device))
        starts = torch.searchsorted(expert, torch.arange(num_experts + 1, device=ids.device))
        return ExpertGroups(places.view(ids.shape), order // ids.shape[1], expert, starts)


class Experts(Protocol):
    """Experts whose weights are here. tensors: each [experts, ...], what an expert is kept in, to be moved about."""

    num_experts: int

    @property
    def tensors(self) -> list[Tensor]: ...

    def rows(self, x: Tensor, groups: ExpertGroups) -> Tensor:
        """Run rows [pairs, H], sorted as groups says, through their experts: [pairs, H or wider]."""
        ...


class DenseExperts:
    """Experts in torch's grouped product.

    gate_up: [experts, 2I, H], gate first. down: [experts, H, I]. Biases: [experts, out] or None.
    """

    def __init__(self, gate_up: Tensor, down: Tensor, gate: Gate, *, gate_up_bias: Tensor | None = None,
                 down_bias: Tensor | None = None) -> None:
        self.num_experts = gate_up.shape[0]
        self._gate_up, self._down, self._gate = gate_up, down, gate
        self._gate_up_bias, self._down_bias = gate_up_bias, down_bias

    @property
    def tensors(self) -> list[Tensor]:
        held = (self._gate_up, self._down, self._gate_up_bias, self._down_bias)
        return [tensor for tensor in held if tensor is not None]

    def rows(self, x: Tensor, groups: ExpertGroups) -> Tensor:
        hidden = grouped_linear(x, self._gate_up, groups.starts)
        if self._gate_up_bias is not None:
            hidden = hidden + self._gate_up_bias[groups.expert]
        out = grouped_linear(self._gate(*hidden.chunk(2, dim=-1)), self._down, groups.starts)
        return out if self._down_bias is None else out + self._down_bias[groups.expert]


class PackedExperts:
    """Experts through the numba kernels: a row's bits do not depend on the other rows.

    gate_up, down: packed with a layer for each expert; gate and up are each padded to whole panels, so that torch's
    activations, whose last bits differ for what doesn't fill a vector, give a row the same bits anywhere.
    hidden: the size of what down gives, without padding.
    """

    def __init__(self, gate_up: Packed, down: Packed, gate: Gate, *, hidden: int) -> None:
        self.num_experts = gate_up.weights.shape[0]
        self._gate_up, self._down, self._gate, self._hidden = gate_up, down, gate, hidden

    @property
    def tensors(self) -> list[Tensor]:
        return [torch.from_numpy(array) for packed in (self._gate_up, self._down) for array in packed]

    def rows(self, x: Tensor, groups: ExpertGroups) -> Tensor:
        starts = groups.starts.numpy()
        hidden = torch.from_numpy(multiply_groups(x.contiguous().numpy(), starts, self._gate_up))
        inner = self._gate(*hidden.chunk(2, dim=-1))
        return torch.from_numpy(multiply_groups(inner.contiguous().numpy(), starts, self._down))[:, : self._hidden]


def grouped_linear(x: Tensor, weight: Tensor, starts: Tensor) -> Tensor:
    """Multiply neighbouring rows by their expert's weights.

    x: [rows, in], sorted by expert. weight: [experts, out, in]. starts: [experts + 1], where each expert's rows begin.
    Rows after the last are undefined. Returns [rows, out].
    """
    if _grouped_mm_takes(x, weight):
        return F.grouped_mm(x, weight.transpose(-2, -1), offs=starts[1:].to(torch.int32))
    out = x.new_empty(x.shape[0], weight.shape[1])
    bounds = starts.tolist()
    for expert, (start, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        if end > start:
            torch.mm(x[start:end], weight[expert].T, out=out[start:end])
    return out


def _grouped_mm_takes(x: Tensor, weight: Tensor) -> bool:
    """Whether torch's grouped product has these: it wants rows of whole 16 bytes, and on CUDA bfloat16."""
    sizes = (x.shape[1] * x.element_size(), weight.shape[1] * weight.element_size())
    fits = all(size % 16 == 0 for size in sizes) and x.is_contiguous() and weight.is_contiguous()
    return fits and (x.device.type == "cpu" or x.dtype == torch.bfloat16)


def combine(rows: Tensor, places: Tensor, weights: Tensor, like: Tensor) -> Tensor:
    """Add up each token's rows with their weights, in the order of its experts.

    rows: [pairs, H]. places, weights: [tokens, k]. Returns what like is, [tokens, H].
    """
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        summed = combine_rows(rows.numpy(), places.numpy(), weights.float().numpy(), rows.shape[1])
        return torch.from_numpy(summed).to(like.dtype)
    return (rows[places].float() * weights.float()[..., None]).sum(1).to(like.dtype)


def grouped_experts(x: Tensor, ids: Tensor, weights: Tensor, experts: Experts) -> Tensor:
    """Return the weighted sum of each token's experts, [tokens, H].

    x: [tokens, H]. ids, weights: [tokens, k], as `inference.layers.moe.route` returns them.
    """
    groups = ExpertGroups.of(ids, experts.num_experts)
    return combine(experts.rows(x[groups.token], groups), groups.places, weights, x)
