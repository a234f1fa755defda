"""The flat, unpadded texts of one batch, and the seam between pooling and the encoder that runs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TextBatch:
    """Texts one behind the other. token_ids, token_types, positions: [tokens]; starts: [texts + 1] borders."""

    token_ids: Int32
    token_types: Int32
    positions: Int32
    starts: Int32

    @property
    def lengths(self) -> Int32:
        return np.diff(self.starts)


class TokenEncoder(Protocol):
    """Turns tokens into hidden states. A text's result does not depend on the others of its batch."""

    hidden_size: int
    max_tokens: int
    vocab_size: int
    weights_bytes: int

    def encode(self, batch: TextBatch) -> Float32:
        """Return the last hidden state of every token, [tokens, hidden]."""


def text_batch(texts: Sequence[Sequence[int]], second_from: Sequence[int] = ()) -> TextBatch:
    """Lay texts one behind the other. second_from: where each text's second segment starts; without it all are 0."""
    lengths = [len(text) for text in texts]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    positions = np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1], lengths)
    types = np.zeros(starts[-1], np.int32)
    if second_from:
        types = (positions >= np.repeat(np.asarray(second_from, np.int32), lengths)).astype(np.int32)
    ids = np.fromiter((token for text in texts for token in text), np.int32, int(starts[-1]))
    return TextBatch(token_ids=ids, token_types=types, positions=positions, starts=starts)
