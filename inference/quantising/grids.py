"""The numbers that a quantised weight can be: whole numbers or FP8, with a scale for an output or a group of inputs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

FP8_MAX = 448.0  # of float8_e4m3fn
SHRINKS = [1.0 - step / 25 for step in range(11)]  # of a group's range, tried in the search for the least error


@dataclass(frozen=True)
class Scales:
    """scale, zero: [out, groups]; zero is None for a symmetric grid, else a whole number of the grid's range."""

    scale: Tensor
    zero: Tensor | None = None

    def columns(self, groups: Tensor) -> "Scales":
        """Return the scales of columns whose groups are given. [out, columns]"""
        return Scales(self.scale[:, groups], None if self.zero is None else self.zero[:, groups])


class Grid(ABC):
    """What a weight is rounded to. group_size: inputs that share a scale; None for all of an output's."""

    group_size: int | None = None

    def groups(self, inputs: int) -> Tensor:
        """Return each input's group. [inputs]"""
        return torch.arange(inputs) // (self.group_size or inputs)

    @abstractmethod
    def fit(self, weight: Tensor, importance: Tensor | None = None) -> Scales:
        """Return the scales for a weight [out, in]; importance [in] weighs each input's error."""

    @abstractmethod
    def codes(self, values: Tensor, scales: Scales) -> Tensor:
        """Return the stored numbers of values, with the scales of each [out, columns]."""

    @abstractmethod
    def decode(self, codes: Tensor, scales: Scales) -> Tensor:
        """Return the values that stored numbers stand for, in float32."""

    def round(self, values: Tensor, scales: Scales) -> Tensor:
        """Return the nearest values of the grid."""
        return self.decode(self.codes(values, scales), scales)


def stored_scale(scale: Tensor) -> Tensor:
    """Return scales that bfloat16 holds exactly, so that no reader rounds them again; never zero."""
    return scale.clamp(min=1e-10).bfloat16().float()


class IntGrid(Grid):
    """Whole numbers of 2 to 8 bits.

    symmetric: zero is zero; else each group has a zero point. searched: ranges are shrunk where that loses less.
    """

    def __init__(self, bits: int, *, symmetric: bool, group_size: int | None = None, searched: bool = False) -> None:
        self.bits = bits
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.symmetric = symmetric
        self.group_size = group_size
        self.searched = searched

    def fit(self, weight: Tensor, importance: Tensor | None = None) -> Scales:
        outputs, inputs = weight.shape
        size = self.group_size or inputs
        view = weight.reshape(outputs, inputs // size, size)
        best = self._scales(view, 1.0)
        if not self.searched:
            return best
        cost = None if importance is None else importance.reshape(1, inputs // size, size)
        least = self._error(view, best, cost)
        for shrink in SHRINKS[1:]:
            tried = self._scales(view, shrink)
            error = self._error(view, tried, cost)
            better = error < least
            least = torch.where(better, error, least)
            zero = None if best.zero is None or tried.zero is None else torch.where(better, tried.zero, best.zero)
            best = Scales(torch.where(better, tried.scale, best.scale), zero)
        return best

    def _scales(self, view: Tensor, shrink: float) -> Scales:
        if self.symmetric:
            return Scales(stored_scale(view.abs().amax(2) * shrink / self.high))
        low, high = view.amin(2).clamp(max=0) * shrink, view.amax(2).clamp(min=0) * shrink
        scale = stored_scale((high - low) / (self.high - self.low))
        return Scales(scale, (self.low - low / scale).round().clamp(self.low, self.high))

    def _error(self, view: Tensor, scales: Scales, importance: Tensor | None) -> Tensor:
        wide = Scales(scales.scale[..., None], None if scales.zero is None else scales.zero[..., None])
        errors = (self.round(view, wide) - view) ** 2
        return (errors if importance is None else errors * importance).sum(2)

    def codes(self, values: Tensor, scales: Scales) -> Tensor:
        steps = values / scales.scale
        if scales.zero is not None:
            steps = steps + scales.zero
        return steps.round().clamp(self.low, self.high)

    def decode(self, codes: Tensor, scales: Scales) -> Tensor:
        return (codes if scales.zero is None else codes - scales.zero) * scales.scale


class Fp8Grid(Grid):
    """FP8 (E4M3) with a scale for each output."""

    def fit(self, weight: Tensor, importance: Tensor | None = None) -> Scales:
        return Scales(stored_scale(weight.abs().amax(1, keepdim=True) / FP8_MAX))

    def codes(self, values: Tensor, scales: Scales) -> Tensor:
        return (values / scales.scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)

    def decode(self, codes: Tensor, scales: Scales) -> Tensor:
        return codes.float() * scales.scale


def round_tokens_int8(values: Tensor) -> Tensor:
    """Return activations rounded to 8-bit whole numbers, one scale a token: what W8A8 kernels compute with."""
    scale = (values.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-10)
    return (values / scale).round().clamp(-128, 127) * scale


def round_tokens_fp8(values: Tensor) -> Tensor:
    """Return activations rounded to FP8, one scale a token."""
    scale = (values.abs().amax(-1, keepdim=True) / FP8_MAX).clamp(min=1e-10)
    return (values / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).float() * scale
