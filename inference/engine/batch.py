"""The flat, unpadded work of one step, and the seam between scheduling (torch-free) and the model that runs it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """Tokens of every scheduled sequence, one after the other; a decode is a sequence with one new token.

    token_ids, positions: [tokens]. slots: [tokens], where the token's key and value go: block * block_size + offset.
    query_starts: [sequences + 1], first row of each sequence in the flat tokens.
    context_lens: [sequences], tokens in the cache of each after this step, the new ones included.
    block_tables: [sequences, most blocks], unused entries -1.
    logit_rows: [logits], rows of the flat tokens whose next-token logits are wanted.
    """

    token_ids: Int32
    positions: Int32
    slots: Int32
    query_starts: Int32
    context_lens: Int32
    block_tables: Int32
    logit_rows: Int32


class ModelRunner(Protocol):
    """A loaded model with its KV pool. One thread calls it."""

    vocab_size: int
    num_blocks: int
    block_size: int

    def forward(self, batch: StepBatch) -> Float32:
        """Write keys and values of the batch into the pool and return logits [len(logit_rows), vocab_size]."""
        ...
