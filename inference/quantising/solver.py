"""Rounds a weight so that what the layer puts out changes least: GPTQ's column by column compensation.

Source: Frantar et al. 2022, "GPTQ", in the form of its reference implementation with static groups: columns are taken
in the order of their inputs' energy, and each one's rounding error is spread over those still to come.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from inference.quantising.grids import Grid, Scales

DAMPING = 0.01  # of the mean energy, added to every input's own
BLOCK = 128


@dataclass(frozen=True)
class Quantised:
    """A rounded weight. codes: the stored numbers [out, in]. scales: [out, groups]. values: what they stand for."""

    codes: Tensor
    scales: Scales
    values: Tensor


def round_nearest(weight: Tensor, grid: Grid, scales: Scales | None = None) -> Quantised:
    """Round every number by itself. weight: [out, in]"""
    scales = scales or grid.fit(weight)
    wide = scales.columns(grid.groups(weight.shape[1]))
    codes = grid.codes(weight, wide)
    return Quantised(codes, scales, grid.decode(codes, wide))


class Solver:
    """Rounds weights [out, in] for inputs x whose mean x xᵀ is energy [in, in]; one serves all layers that share them.

    An input that is always zero keeps the nearest number.
    """

    def __init__(self, energy: Tensor) -> None:
        self._diagonal = energy.diagonal().clone()
        self._order = self._diagonal.argsort(descending=True)
        self._spread = _spread(energy[self._order][:, self._order])

    def solve(self, weight: Tensor, grid: Grid) -> Quantised:
        """Return the rounded weight."""
        scales = grid.fit(weight, self._diagonal)
        wide = scales.columns(grid.groups(weight.shape[1])[self._order])
        left = weight[:, self._order].clone()
        codes, spread = torch.empty_like(left), self._spread
        for start in range(0, left.shape[1], BLOCK):
            stop = min(start + BLOCK, left.shape[1])
            own = Scales(*_slice(wide, start, stop))
            errors = _solve_block(left[:, start:stop], grid, own, spread[start:stop, start:stop], codes[:, start:stop])
            left[:, stop:] -= errors @ spread[start:stop, stop:]
        back = self._order.argsort()
        codes = codes[:, back]
        return Quantised(codes, scales, grid.decode(codes, wide.columns(back)))


def _slice(scales: Scales, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
    return scales.scale[:, start:stop], None if scales.zero is None else scales.zero[:, start:stop]


def _spread(energy: Tensor) -> Tensor:
    """Return the upper Cholesky factor of the damped inverse: row i spreads column i's error over later columns."""
    damped = energy.double()
    damped.diagonal().add_(DAMPING * damped.diagonal().mean().clamp(min=1e-12))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    factor: Tensor = torch.linalg.cholesky(inverse, upper=True)
    return factor.float()


def _solve_block(left: Tensor, grid: Grid, scales: Scales, spread: Tensor, codes: Tensor) -> Tensor:
    """Round the columns of a block in turn, into codes; return each column's error over its own factor."""
    left, errors = left.clone(), torch.empty_like(left)
    for column in range(left.shape[1]):
        own = Scales(*_slice(scales, column, column + 1))
        chosen = grid.codes(left[:, column : column + 1], own)
        codes[:, column : column + 1] = chosen.float()
        error = (left[:, column : column + 1] - grid.decode(chosen, own)) / spread[column, column]
        left[:, column:] -= error * spread[column, column:]
        errors[:, column : column + 1] = error
    return errors
