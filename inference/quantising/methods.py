"""The methods: how each one scales, rounds and compensates the linear layers of a block, given what goes into them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from inference.quantising.blocks import Block, largest, mean_size
from inference.quantising.calibration import RoundInputs
from inference.quantising.grids import Fp8Grid, Grid, IntGrid, round_tokens_fp8, round_tokens_int8
from inference.quantising.solver import Quantised, Solver, round_nearest

ALPHAS = [step / 20 for step in range(21)]
SEARCH_TOKENS = 1024  # of all calibration tokens, spread evenly, for trying many scales


class Method(ABC):
    """One way of quantising. grid: what weights are rounded to. round_inputs: what the checkpoint asks of activations.

    scales_inputs: whether it needs a family whose inputs can be scaled.
    """

    grid: Grid
    round_inputs: RoundInputs | None = None
    scales_inputs: ClassVar[bool] = False

    def scale(self, block: Block, inputs: list[Tensor]) -> None:
        """Scale the block's weights for its inputs, [tokens, in] a sequence, and undo it in what produces them."""
        raise NotImplementedError(f"{type(self).__name__} scales no inputs")

    @abstractmethod
    def quantise(self, block: Block, inputs: list[Tensor]) -> list[Quantised]:
        """Return the rounded weights of a block's layers, whose inputs are these, [tokens, in] a sequence."""


class Gptq(Method):
    """4-bit weights, each group with a zero point, compensated column by column."""

    def __init__(self, *, group_size: int) -> None:
        self.grid: Grid = IntGrid(4, symmetric=False, group_size=group_size, searched=True)

    def quantise(self, block: Block, inputs: list[Tensor]) -> list[Quantised]:
        return _solved(block, self.grid, inputs)


class Fp8(Method):
    """FP8 weights with a scale an output, compensated column by column; dynamic: activations in FP8 too."""

    def __init__(self, *, dynamic: bool) -> None:
        self.grid: Grid = Fp8Grid()
        self.round_inputs = round_tokens_fp8 if dynamic else None

    def quantise(self, block: Block, inputs: list[Tensor]) -> list[Quantised]:
        return _solved(block, self.grid, _rounded(inputs, self.round_inputs))


class SmoothQuant(Method):
    """8-bit weights and activations: what makes activations hard to round is moved into the weights first.

    Source: Xiao et al. 2022; the strength is searched for each block, and rounding is compensated column by column.
    """

    scales_inputs: ClassVar = True

    def __init__(self) -> None:
        self.grid: Grid = IntGrid(8, symmetric=True)
        self.round_inputs = round_tokens_int8

    def scale(self, block: Block, inputs: list[Tensor]) -> None:
        sample = _sample(inputs)
        peaks = largest(inputs).clamp(min=1e-5)
        weights = torch.cat([module.weight for module in block.modules])
        tops = weights.abs().amax(0).clamp(min=1e-5)
        wanted = sample @ weights.T
        best, factors = float("inf"), torch.ones_like(peaks)
        for alpha in ALPHAS:
            tried = block.shared(_normed(peaks**alpha / tops ** (1 - alpha)))
            rounded = round_nearest(weights * tried, self.grid).values
            error = float(((round_tokens_int8(sample / tried) @ rounded.T - wanted) ** 2).mean())
            if error < best:
                best, factors = error, tried
        block.scale(factors)

    def quantise(self, block: Block, inputs: list[Tensor]) -> list[Quantised]:
        return _solved(block, self.grid, _rounded(inputs, self.round_inputs))


class Awq(Method):
    """4-bit weights: inputs that are large on average get finer steps, and ranges are clipped where that loses less.

    Source: Lin et al. 2023.
    """

    scales_inputs: ClassVar = True

    def __init__(self, *, group_size: int) -> None:
        self.grid: Grid = IntGrid(4, symmetric=False, group_size=group_size)
        self._clipped = IntGrid(4, symmetric=False, group_size=group_size, searched=True)

    def scale(self, block: Block, inputs: list[Tensor]) -> None:
        sample, sizes = _sample(inputs), mean_size(inputs).clamp(min=1e-5)
        weights = torch.cat([module.weight for module in block.modules])
        wanted = sample @ weights.T
        best, factors = float("inf"), torch.ones_like(sizes)
        for alpha in ALPHAS:
            tried = block.shared(_normed(sizes**alpha))
            rounded = round_nearest(weights * tried, self.grid).values / tried
            error = float(((sample @ rounded.T - wanted) ** 2).mean())
            if error < best:
                best, factors = error, tried
        block.scale(factors)

    def quantise(self, block: Block, inputs: list[Tensor]) -> list[Quantised]:
        importance = torch.cat(inputs).square().mean(0)
        return [round_nearest(module.weight, self.grid, self._clipped.fit(module.weight, importance))
                for module in block.modules]


@dataclass(frozen=True)
class Choices:
    """What the command line can choose: group_size of the 4-bit methods, whether fp8 rounds activations."""

    group_size: int = 128
    fp8_activations: bool = False


METHODS = ("smoothquant-int8", "awq-int4", "gptq-int4", "fp8")


def method_of(name: str, choices: Choices) -> Method:
    """Return a method by its name on the command line."""
    if name == "smoothquant-int8":
        return SmoothQuant()
    if name == "awq-int4":
        return Awq(group_size=choices.group_size)
    if name == "gptq-int4":
        return Gptq(group_size=choices.group_size)
    return Fp8(dynamic=choices.fp8_activations)


def energy(inputs: list[Tensor]) -> Tensor:
    """Return the mean of x xᵀ over all inputs. [in, in]"""
    together = torch.cat(inputs)
    return together.T @ together / len(together)


def _solved(block: Block, grid: Grid, inputs: list[Tensor]) -> list[Quantised]:
    solver = Solver(energy(inputs))
    return [solver.solve(module.weight, grid) for module in block.modules]


def _rounded(inputs: list[Tensor], round_inputs: RoundInputs | None) -> list[Tensor]:
    return inputs if round_inputs is None else [round_inputs(part) for part in inputs]


def _sample(inputs: list[Tensor]) -> Tensor:
    together = torch.cat(inputs)
    return together[:: max(1, len(together) // SEARCH_TOKENS)]


def _normed(factors: Tensor) -> Tensor:
    """Return factors around one, so that neither side leaves its range."""
    return factors / (factors.amax() * factors.amin()).sqrt()
