"""The flat, unpadded work of one step, and the seam between scheduling (torch-free) and the model that runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inference.engine.request import Chunk
from inference.engine.sampler import BadLogitsError
from inference.protocol import ExpertLoad
from inference.spec import SamplingParams

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """Tokens of every scheduled sequence, one after the other; a decode is a sequence with one new token,
    and after it guesses that are to be verified.

    token_ids, positions: [tokens]. slots: [tokens], where the token's key and value go: block * block_size + offset.
    query_starts: [sequences + 1], first row of each sequence in the flat tokens.
    context_lens: [sequences], tokens in the cache of each after this step, the new ones included.
    block_tables: [sequences, most blocks], unused entries -1.
    logit_rows: [logits], rows of the flat tokens whose next-token logits are wanted.
    total_lens: [sequences], tokens known of each so far, those not yet in the cache included; guesses aren't counted.
    None is context_lens. adapters: the number of each sequence's adapter, 0 for none; empty when nobody has one.
    """

    token_ids: Int32
    positions: Int32
    slots: Int32
    query_starts: Int32
    context_lens: Int32
    block_tables: Int32
    logit_rows: Int32
    total_lens: Int32 | None = None
    adapters: tuple[int, ...] = ()


def build_batch(chunks: Sequence[Chunk], block_size: int) -> StepBatch:
    """Lay the chunks of a plan out as one flat batch, in their order. Logits are for the chunks that want them.

    A chunk's draft follows its tokens, and its last token and every guess have logits.
    """
    counts = np.array([chunk.num_rows for chunk in chunks], dtype=np.int32)
    starts = np.array([chunk.start for chunk in chunks], dtype=np.int32)
    query_starts = np.zeros(len(chunks) + 1, dtype=np.int32)
    np.cumsum(counts, out=query_starts[1:])
    tables = np.full((len(chunks), max(len(chunk.request.block_table) for chunk in chunks)), -1, dtype=np.int32)
    token_ids = np.empty(query_starts[-1], dtype=np.int32)
    for row, chunk in enumerate(chunks):
        table = chunk.request.block_table
        tables[row, :len(table)] = np.frombuffer(table, dtype=np.int32)
        known = chunk.request.token_ids[chunk.start:chunk.start + chunk.count]
        token_ids[query_starts[row]:query_starts[row + 1]] = [*known, *chunk.draft]
    sequence = np.repeat(np.arange(len(chunks), dtype=np.int32), counts)  # [tokens]
    positions = np.arange(query_starts[-1], dtype=np.int32) - query_starts[sequence] + starts[sequence]
    return StepBatch(
        token_ids=token_ids,
        positions=positions,
        slots=tables[sequence, positions // block_size] * block_size + positions % block_size,
        query_starts=query_starts,
        context_lens=starts + counts,
        block_tables=tables,
        logit_rows=np.array([logit_row for end, chunk in zip(query_starts[1:], chunks, strict=True)
                             for logit_row in range(end - chunk.num_logits, end)], dtype=np.int32),
        adapters=adapters if any(adapters := tuple(chunk.request.adapter for chunk in chunks)) else (),
        total_lens=np.array([len(chunk.request.token_ids) for chunk in chunks], dtype=np.int32),
    )


BAD = -1
"""What a device draws from a row that has no token to choose: its largest logit is NaN or infinite."""


@dataclass(frozen=True)
class Draw:
    """How one row is drawn: parameters, and the index of the new output token from 1."""

    params: SamplingParams
    position: int


def drawn_id(token_id: int) -> int:
    """Return what a device has drawn. Raises BadLogitsError for BAD."""
    if token_id == BAD:
        raise BadLogitsError("the model's largest logit is not a finite number")
    return token_id


class TokenDrawer(Protocol):
    """A runner that draws tokens where the logits are, so that they need not come to the host."""

    def draw(self, batch: StepBatch, draws: Sequence[Draw], *, vocab_size: int) -> npt.NDArray[np.int64]:
        """Run a step as `forward` does, and draw an id below vocab_size for each of its logit rows; BAD for none."""
        ...


@dataclass(frozen=True)
class LoadedAdapter:
    """A LoRA adapter beside a model: the number that batches name it by, and a hash of its content."""

    number: int
    digest: bytes


class ModelSpec(Protocol):
    """What the loop must know of a model; DecoderSpec and FallbackSpec have it."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_position(self) -> int: ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...

    @property
    def switch_length(self) -> int | None: ...


class ExpertCounter(Protocol):
    """Counts how many of the latest tokens each expert computed (inference.experts.counts)."""

    def load(self) -> ExpertLoad: ...

    def forget(self) -> None: ...


class ModelRunner(Protocol):
    """A loaded model with its KV pool. One thread calls it.

    spec, max_model_len: what was loaded and how far its context goes. weights_bytes, kv_cache_bytes: memory, in bytes.
    drawer: the runner, if it can draw tokens by itself. mode: the numeric recipe that runs, which may not be the one
    that was asked for; notes: lines that say so, and what else differs from the usual. shares_prefixes: whether a block
    means the same to every request that finds it. expert_counts: how many tokens each expert computed.
    """

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def weights_bytes(self) -> int: ...

    @property
    def kv_cache_bytes(self) -> int: ...

    @property
    def mode(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def drawer(self) -> TokenDrawer | None: ...

    @property
    def shares_prefixes(self) -> bool: ...

    @property
    def expert_counts(self) -> ExpertCounter | None: ...

    def forward(self, batch: StepBatch) -> Float32:
        """Write keys and values of the batch into the pool and return logits [len(logit_rows), vocab_size]."""
        ...

    def release(self, first_block: int) -> None:
        """A request gave its blocks back, of which this was the first."""
        ...

    def add_adapter(self, folder: Path) -> LoadedAdapter:
        """Load a LoRA adapter. Raises ArtifactError or SpecError when it can't be served."""
        ...

    def drop_adapter(self, number: int) -> None:
        """Forget an adapter that no request uses any more."""
        ...
