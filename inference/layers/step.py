"""What the layers of a torch decoder share in a step: its work as tensors, and each layer's part of the paged cache."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor


class LayerCache(NamedTuple):
    """One layer's part of the paged pool. Latent attention keeps everything in keys, and values have no elements.

    keys: [blocks, block size, heads, key dim]. values: [blocks, block size, heads, value dim].
    """

    keys: Tensor
    values: Tensor

    def write(self, slots: Tensor, keys: Tensor, values: Tensor | None = None) -> None:
        """Store keys and values [tokens, heads, dim] at slots [tokens] (block * block size + offset)."""
        self.keys.view(-1, *self.keys.shape[2:]).index_copy_(0, slots, keys.to(self.keys.dtype))
        if values is not None:
            self.values.view(-1, *self.values.shape[2:]).index_copy_(0, slots, values.to(self.values.dtype))


@dataclass(frozen=True, kw_only=True)
class StepTensors:
    """One step's work (see StepBatch) on the model's device, made once and shared by all layers.

    token_ids, positions, slots: [tokens], int64. sequence_of: [tokens], int64, the sequence that each belongs to.
    query_starts: [sequences + 1], int32. context_lens: [sequences], int32. block_tables: [sequences, blocks], int32,
    unused entries 0. rotary: for each of the decoder's ropes, cosine and sine of each token, [tokens, rotated / 2].
    max_query, max_context: the largest of each sequence's new tokens and of context_lens. adapters: number and rows
    of each adapter in the step (inference.layers.lora).
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    sequence_of: Tensor
    query_starts: Tensor
    context_lens: Tensor
    block_tables: Tensor
    rotary: tuple[tuple[Tensor, Tensor], ...]
    max_query: int
    max_context: int
    adapters: tuple[tuple[int, Tensor], ...] = ()


class Linear(Protocol):
    """A linear layer over rows; step says which rows belong to whom, for what differs between requests."""

    def __call__(self, x: Tensor, step: StepTensors) -> Tensor:
        """Return x [rows, in] times the weights, with its bias, [rows, out]."""
        ...


class AttentionModule(Protocol):
    """A layer's attention, whatever it caches. Made as `Module(spec, index, load)` with a WeightLoader."""

    def __call__(self, x: Tensor, step: StepTensors, cache: LayerCache) -> Tensor:
        """Return what attention adds for x [tokens, hidden], the same shape, and write the step's part of the cache."""
        ...


class MlpModule(Protocol):
    """A layer's MLP or mixture of experts. Made as `Module(spec, index, load)` with a WeightLoader."""

    def __call__(self, x: Tensor, step: StepTensors) -> Tensor:
        """Return what it adds for x [tokens, hidden], the same shape."""
        ...
