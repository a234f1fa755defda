"""Makes vectors of hidden states: pooled dense ones, lexical weights, and one vector a token.

All in float32 numpy, text by text, so that a text's vectors do not depend on the others of its batch.
"""

import math
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.safetensors import open_safetensors
from inference.encoders.sentence import DenseSpec, PoolingMode, SentenceSpec
from inference.encoders.weights import Linear
from inference.pooling.activations import activate

Float32 = npt.NDArray[np.float32]

def apply_linear(x: Float32, linear: Linear) -> Float32:
    """Return x [rows, inputs] through a layer, row by row: BLAS gives a row other bits in another company."""
    out = np.stack([linear.weight @ row for row in x]) if len(x) else np.zeros((0, len(linear.weight)), np.float32)
    return out if linear.bias is None else out + linear.bias


def normalise(x: Float32) -> Float32:
    """Divide each row by its length (at least 1e-12, as torch does)."""
    length = np.sqrt(np.sum(x.astype(np.float64) ** 2, axis=-1, keepdims=True))
    scaled: Float32 = (x / np.maximum(length, 1e-12)).astype(np.float32)
    return scaled


class DensePooler:
    """Dense vectors as the model's own files say: pooling modes joined, further layers, normalisation."""

    def __init__(self, spec: SentenceSpec, layers: Sequence[Linear]) -> None:
        self._spec = spec
        self._layers = list(zip(layers, spec.dense, strict=True))

    def __call__(self, hidden: Float32, *, skip: int = 0, dimensions: int | None = None,
                 normalised: bool | None = None) -> Float32:
        """Return one text's vector [size] from its hidden states [tokens, hidden].

        skip: an instruction's tokens, left out of pooling unless that leaves nothing. dimensions: cut to so many
        elements. normalised: None does as the files say, and a vector that was normalised is so again when cut.
        """
        seen = hidden[skip:] if 0 < skip < len(hidden) else hidden
        first = len(hidden) - len(seen) + 1
        vector = np.concatenate([pool(seen, mode, first_weight=first) for mode in self._spec.modes])[None]
        for layer, spec in self._layers:
            vector = activate(apply_linear(vector, layer), spec.activation)
        if dimensions is not None:
            vector = vector[:, :dimensions]
        wanted = self._spec.normalise if normalised is None else normalised
        final: Float32 = (normalise(vector) if wanted else vector)[0]
        return final


def pool(hidden: Float32, mode: PoolingMode, *, first_weight: int = 1) -> Float32:
    """Pool hidden states [tokens, hidden] to one vector [hidden]. first_weight: of the first row in weightedmean."""
    count = len(hidden)
    pooled: Float32
    if mode == "cls":
        pooled = hidden[0]
    elif mode == "lasttoken":
        pooled = hidden[-1]
    elif mode == "max":
        pooled = hidden.max(axis=0)
    elif mode == "weightedmean":
        weights = np.arange(first_weight, first_weight + count, dtype=np.float32)
        pooled = (hidden * weights[:, None]).sum(axis=0) / weights.sum()
    else:
        pooled = hidden.sum(axis=0) / np.float32(count if mode == "mean" else math.sqrt(count))
    return pooled


def sparse_weights(hidden: Float32, token_ids: Sequence[int], head: Linear, unused: Collection[int]
                   ) -> tuple[list[int], Float32]:
    """Return (token ids, weights) of one text: the largest positive weight of each token id, in order of ids.

    Source: BGEM3FlagModel, which leaves out control tokens (`unused`).
    """
    weights = np.maximum(apply_linear(hidden, head)[:, 0], np.float32(0))
    largest: dict[int, np.float32] = {}
    for token, weight in zip(token_ids, weights, strict=True):
        if token not in unused and weight > largest.get(token, np.float32(0)):
            largest[token] = weight
    ids = sorted(largest)
    return ids, np.array([largest[token] for token in ids], np.float32)


def token_vectors(hidden: Float32, head: Linear | None) -> Float32:
    """Return one normalised vector a token, [rows, size].

    With a head of its own (BGE-M3's) every token but the first goes through it; without one these are the hidden
    states themselves.
    """
    return normalise(hidden if head is None else apply_linear(hidden[1:], head))


def max_sim(query: Float32, document: Float32) -> np.float32:
    """Return the sum over the query's vectors of the largest dot product with one of the document's (ColBERT)."""
    if not len(query) or not len(document):
        return np.float32(0)
    products = query.astype(np.float64) @ document.astype(np.float64).T
    return np.float32(products.max(axis=1).sum())


def read_dense(folder: Path, spec: DenseSpec) -> Linear:
    """Read a Dense module's weights from its folder. Raises ArtifactError."""
    files = open_safetensors(folder / spec.folder)
    shapes = {"linear.weight": (spec.outputs, spec.inputs)} | ({"linear.bias": (spec.outputs,)} if spec.bias else {})
    for name, shape in shapes.items():
        if name not in files:
            raise ArtifactError(spec.folder, f"tensor {name!r} is missing")
        entry = files[name].entries[name]
        if entry.shape != shape or entry.dtype != "F32":
            raise ArtifactError(spec.folder, f"tensor {name!r} is {entry.dtype} {list(entry.shape)}, "
                                             f"expected F32 {list(shape)}")
    values = {name: files[name].read_raw(name).view("<f4").reshape(shape) for name, shape in shapes.items()}
    return Linear(values["linear.weight"], values.get("linear.bias"))
