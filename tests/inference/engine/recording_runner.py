"""A runner around another one that checks each row of logits: one context, one set of bits, whoever shares the step."""

from hashlib import blake2b

import numpy as np

from inference.engine.batch import Float32, ModelRunner, StepBatch


class RecordingRunner:
    """Remembers a digest of the logits of every context that it sees. See engine/batch.py: ModelRunner.

    seen: how often each context's logits were computed; `forward` fails when they differ from the first time.
    """

    def __init__(self, inner: ModelRunner) -> None:
        self.vocab_size, self.num_blocks, self.block_size = inner.vocab_size, inner.num_blocks, inner.block_size
        self._inner = inner
        self._tokens = np.full(inner.num_blocks * inner.block_size, -1, np.int32)  # what each slot was computed from
        self._digests: dict[bytes, bytes] = {}
        self.seen: dict[bytes, int] = {}

    def forward(self, batch: StepBatch) -> Float32:
        logits = self._inner.forward(batch)
        self._tokens[batch.slots] = batch.token_ids
        for row, values in zip(batch.logit_rows, logits, strict=True):
            context = self._context(batch, int(row)).tobytes()
            digest = blake2b(np.ascontiguousarray(values), digest_size=16).digest()
            assert self._digests.setdefault(context, digest) == digest, \
                f"the logits after {len(context) // 4} tokens have other bits than before"
            self.seen[context] = self.seen.get(context, 0) + 1
        return logits

    def _context(self, batch: StepBatch, row: int) -> np.ndarray:
        sequence = int(np.searchsorted(batch.query_starts, row, side="right")) - 1
        positions = np.arange(batch.positions[row] + 1)
        blocks = batch.block_tables[sequence][positions // self.block_size]
        return self._tokens[blocks * self.block_size + positions % self.block_size]
