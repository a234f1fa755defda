"""LoRA adapters beside a decoder's linear layers: loaded and dropped at run time, many in one batch, one a request."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inference.artifacts.adapter import WEIGHTS, AdapterSource
from inference.artifacts.errors import ArtifactError
from inference.artifacts.families import stored_tensors
from inference.decoder_spec import DecoderSpec
from inference.layers.step import Linear, StepTensors
from inference.spec import SpecError

MakeLinear = Callable[[npt.NDArray[np.float32]], Linear]
"""Makes a linear layer without bias from weights [out, in], for the device of the decoder."""


@dataclass(frozen=True)
class _Change:
    """What an adapter adds to one part: up(down(x)), the factor being in up."""

    down: Linear
    up: Linear


@dataclass
class Adapters:
    """The adapters that are loaded, by number from 1, and the parts of the decoder that can be changed.

    most: how many there may be at a time. parts: names of the decoder's parts that run through an AdaptedLinear.
    """

    most: int
    parts: set[str] = field(default_factory=set)
    _changes: dict[int, dict[str, _Change]] = field(default_factory=dict)
    _last: int = 0

    def add(self, source: AdapterSource, spec: DecoderSpec, make: MakeLinear) -> int:
        """Load an adapter and return its number. Raises ArtifactError when it doesn't fit the decoder."""
        if len(self._changes) >= self.most:
            raise SpecError("max_adapters", f"{self.most} adapters are loaded already, and no more are taken")
        source.check_base(spec)
        stored = stored_tensors(spec)
        changes: dict[str, _Change] = {}
        for module in source.modules.values():
            down, up = source.read(module.name, "A"), source.read(module.name, "B") * np.float32(module.scale)
            row = 0
            for part, rows in stored[f"{module.name}.weight"].holds:
                name = part.removesuffix(".weight")
                if name not in self.parts:
                    raise ArtifactError(WEIGHTS, f"changes {module.name[:100]!r}, and adapters can't change that part "
                                                 "of this model")
                changes[name] = _Change(make(down), make(np.ascontiguousarray(up[row : row + rows])))
                row += rows
        self._last += 1
        self._changes[self._last] = changes
        return self._last

    def drop(self, number: int) -> None:
        """Forget an adapter; no step may name it any more."""
        self._changes.pop(number, None)

    def change(self, number: int, part: str) -> _Change | None:
        """Return what an adapter adds to a part, if anything."""
        return self._changes[number].get(part)


class AdaptedLinear:
    """A linear layer of several parts, to whose outputs each row's adapter adds its own.

    widths: outputs of each part, in order.
    """

    def __init__(self, base: Linear, parts: dict[str, int], adapters: Adapters) -> None:
        self.base, self._parts, self._adapters = base, parts, adapters
        adapters.parts.update(parts)

    def __call__(self, x: Tensor, step: StepTensors) -> Tensor:
        out = self.base(x, step)
        if not step.adapters:
            return out
        out = out.clone()
        for number, rows in step.adapters:
            own = x[rows]
            first = 0
            for part, width in self._parts.items():
                change = self._adapters.change(number, part)
                if change is not None:
                    out[rows, first : first + width] += change.up(change.down(own, step), step)
                first += width
        return out


def rows_by_adapter(adapters: tuple[int, ...], sequence_of: Tensor) -> tuple[tuple[int, Tensor], ...]:
    """Return each adapter of a step (a number for each sequence, 0 for none) with the rows that it is for."""
    numbers = torch.tensor(adapters, device=sequence_of.device)[sequence_of]
    return tuple((number, (numbers == number).nonzero()[:, 0]) for number in sorted(set(adapters) - {0}))


def among(adapters: tuple[tuple[int, Tensor], ...], chosen: Tensor) -> tuple[tuple[int, Tensor], ...]:
    """Return the adapters' rows counted among chosen rows only, [chosen], in their order."""
    return tuple((number, torch.isin(chosen, rows).nonzero()[:, 0]) for number, rows in adapters)
