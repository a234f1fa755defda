"""Makes a torch decoder's weights from a checkpoint: packed for numba on the CPU, plain tensors elsewhere."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from inference.artifacts.checkpoint import Checkpoint
from inference.kernels.linear import Packed
from inference.kernels.packed import embed_rows, multiply_rows
from inference.layers.linear import fill, fill_bias, packed_bytes, packed_room, panels_for
from inference.layers.lora import AdaptedLinear, Adapters
from inference.layers.step import Linear, StepTensors
from inference.spec import Mode

OnBytes = Callable[[int, int], None]


class PackedLinear:
    """A linear layer through the numba kernels: a row's bits do not depend on the other rows."""

    def __init__(self, packed: Packed, outputs: int) -> None:
        self.packed, self.outputs = packed, outputs

    def __call__(self, x: Tensor, step: StepTensors) -> Tensor:
        return torch.from_numpy(multiply_rows(x.contiguous().numpy(), self.packed))[:, : self.outputs]


class DenseLinear:
    """A linear layer in torch's own product."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor, step: StepTensors) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Embedding:
    """Rows of a table of embeddings, and the output head when it is tied to them."""

    def __init__(self, table: PackedLinear | DenseLinear) -> None:
        self.table = table

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Return the rows of token_ids [tokens], [tokens, hidden]."""
        if isinstance(self.table, PackedLinear):
            return torch.from_numpy(embed_rows(token_ids.numpy(), self.table.packed))
        return F.embedding(token_ids, self.table.weight)


class WeightLoader:
    """Reads parts of a checkpoint (inference.artifacts.parts) into layers for a device.

    device, dtype: where and as what plain tensors are kept. packs: whether linear layers are packed for numba, as on
    the CPU; mode: how.
    on_bytes(done, total): bytes of the checkpoint that have been read. nbytes: memory that the weights hold so far.
    held_experts: which of a layer's experts are kept in this process; None keeps all. adapters: where linear layers
    look for what is added to them; None for a model that gets none.
    """

    def __init__(
        self, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype, mode: Mode, on_bytes: OnBytes
    ) -> None:
        self.device, self.dtype, self.mode, self.nbytes = device, dtype, mode, 0
        self.packs = device.type == "cpu"
        self.held_experts: Callable[[int], Sequence[int]] | None = None
        self.adapters: Adapters | None = None
        self._checkpoint, self._on_bytes = checkpoint, on_bytes
        self._done, self._total = 0, checkpoint.nbytes

    def __contains__(self, part: str) -> bool:
        return part in self._checkpoint

    def read(self, part: str) -> npt.NDArray[np.float32]:
        """Return a part's values in float32, and count its bytes as read."""
        values = self._checkpoint.read(part)
        self._done += self._checkpoint.part_nbytes(part)
        self._on_bytes(min(self._done, self._total), self._total)
        return values

    def tensor(self, part: str, *, exact: bool = False) -> Tensor:
        """Return a part as a tensor of its own on the device. exact: in float32 whatever the others are kept in."""
        values = torch.from_numpy(np.array(self.read(part), np.float32))
        values = values.to(self.device, torch.float32 if exact else self.dtype)
        self.nbytes += values.nbytes
        return values

    def linear(self, *parts: str, exact: bool = False) -> Linear:
        """Return one linear layer whose outputs are those of the given parts (without .weight), one after the other.

        exact: its weights and what it is given stay in float32.
        """
        base = self._packed(parts, exact) if self.packs else self._dense(parts, exact)
        if self.adapters is None:
            return base
        return AdaptedLinear(base, {part: self._checkpoint.rows(f"{part}.weight") for part in parts}, self.adapters)

    def added_linear(self, weight: npt.NDArray[np.float32]) -> Linear:
        """Return a linear layer of an adapter's weights [out, in]; on the CPU they stay in float32."""
        if not self.packs:
            return DenseLinear(torch.from_numpy(np.array(weight)).to(self.device, self.dtype), None)
        packed = packed_room(layers=1, panels=panels_for(len(weight)), inputs=weight.shape[1], mode="float32")
        fill(packed, 0, weight)
        return PackedLinear(packed, len(weight))

    def embedding(self, part: str) -> Embedding:
        """Return the table of embeddings."""
        table = self._packed((part,)) if self.packs else self._dense((part,))
        return Embedding(table)

    def _dense(self, parts: tuple[str, ...], exact: bool = False) -> DenseLinear:
        weight = torch.cat([self.tensor(f"{part}.weight", exact=exact) for part in parts])
        biases = [self.tensor(f"{part}.bias", exact=exact) for part in parts if f"{part}.bias" in self]
        return DenseLinear(weight, torch.cat(biases) if biases else None)

    def _packed(self, parts: tuple[str, ...], exact: bool = False) -> PackedLinear:
        weights = [self.read(f"{part}.weight") for part in parts]
        outputs = sum(len(values) for values in weights)
        packed = packed_room(layers=1, panels=panels_for(outputs), inputs=weights[0].shape[1],
                             mode="float32" if exact else self.mode)
        row = 0
        for part, values in zip(parts, weights, strict=True):
            fill(packed, 0, values, first_output=row)
            if f"{part}.bias" in self:
                fill_bias(packed, 0, self.read(f"{part}.bias"), first_output=row)
            row += len(values)
        self.nbytes += packed_bytes(packed)
        return PackedLinear(packed, outputs)
