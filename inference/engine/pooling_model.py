"""An embedding or rerank model as the engine's loop uses it: checks requests, and turns hidden states into answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from inference.encoders.sentence import SentenceSpec
from inference.encoders.weights import Linear
from inference.models.encoder_batch import TokenEncoder
from inference.pooling.scores import ClassifierHead, YesNoHead
from inference.pooling.vectors import DensePooler, max_sim, sparse_weights, token_vectors
from inference.protocol import MAX_FRAME_BYTES, Embed, EmbeddingOutput, PooledFrame, Score, ScoreMethod, Vectors
from inference.spec import EngineKind, SpecError

Float32 = npt.NDArray[np.float32]

MAX_INPUTS = 4096


@dataclass(frozen=True, kw_only=True)
class PoolingModel:
    """An encoder and what stands behind it; parts that the model lacks are None.

    unused_ids: control tokens, without lexical weights. max_tokens: of one text. fast: whether the encoder is the
    compiled one.
    """

    kind: EngineKind
    encoder: TokenEncoder
    sentence: SentenceSpec
    pooler: DensePooler
    max_tokens: int
    sparse_head: Linear | None = None
    vector_head: Linear | None = None
    classifier: ClassifierHead | None = None
    yes_no: YesNoHead | None = None
    unused_ids: frozenset[int] = field(default_factory=frozenset)

    @property
    def embedding_size(self) -> int:
        return self.sentence.vector_size(self.encoder.hidden_size)

    @property
    def vector_size(self) -> int:
        """Elements of one token's vector in multi-vector output."""
        return self.encoder.hidden_size if self.vector_head is None else len(self.vector_head.weight)

    @property
    def outputs(self) -> tuple[EmbeddingOutput, ...]:
        if self.kind == "rerank":
            return ()
        return ("dense", *(("sparse",) if self.sparse_head else ()), "multi_vector")

    @property
    def methods(self) -> tuple[ScoreMethod, ...]:
        if self.classifier is not None:
            return ("cross_encoder",)
        return ("yes_no",) if self.yes_no is not None else ("late_interaction", "cosine")

    def check(self, frame: PooledFrame) -> None:
        """Raise SpecError unless this model can answer the frame."""
        if isinstance(frame, Embed):
            self._check_embed(frame)
        else:
            self._check_score(frame)

    def _check_embed(self, frame: Embed) -> None:
        if not self.outputs:
            raise SpecError("model", "is a reranker and has no embeddings")
        self._check_texts(frame.inputs, "inputs")
        if not frame.outputs or len(set(frame.outputs)) < len(frame.outputs):
            raise SpecError("outputs", "must name each wanted output once")
        if missing := [name for name in frame.outputs if name not in self.outputs]:
            raise SpecError("outputs", f"this model has no {missing[0]} output; it has: {', '.join(self.outputs)}")
        self._check_dimensions(frame.dimensions)
        if frame.prompt_tokens < 0:
            raise SpecError("prompt_tokens", "must not be negative")
        tokens = sum(map(len, frame.inputs))
        size = 4 * (len(frame.inputs) * self.embedding_size
                    + ("multi_vector" in frame.outputs) * tokens * self.vector_size)
        if size > MAX_FRAME_BYTES // 2:
            raise SpecError("inputs", f"would give {size:,} bytes of vectors, and one reply takes at most "
                                      f"{MAX_FRAME_BYTES // 2:,}")

    def _check_dimensions(self, dimensions: int | None) -> None:
        if dimensions is None:
            return
        sentence, size = self.sentence, self.embedding_size
        if not sentence.takes_dimensions():
            raise SpecError("dimensions", "this model's vectors can't be cut: it declares no dimensions")
        allowed = sentence.dimensions
        if not 1 <= dimensions <= size or (allowed and dimensions not in (*allowed, size)):
            which = f"one of {', '.join(map(str, allowed))}" if allowed else f"between 1 and {size:,}"
            raise SpecError("dimensions", f"is {dimensions}, and must be {which}")

    def _check_score(self, frame: Score) -> None:
        if frame.method not in self.methods:
            raise SpecError("method", f"this model does not score by {frame.method}; it has: {', '.join(self.methods)}")
        self._check_texts(frame.documents, "documents")
        apart = frame.method in ("late_interaction", "cosine")
        if apart:
            self._check_texts(frame.queries, "queries")
            if len(frame.queries) not in (1, len(frame.documents)):
                raise SpecError("queries", f"{len(frame.queries)} queries and {len(frame.documents)} documents make "
                                           "no pairs")
        elif frame.queries:
            raise SpecError("queries", f"{frame.method} takes whole sequences as documents")
        if frame.second_from and len(frame.second_from) != len(frame.documents):
            raise SpecError("second_from", "must have one number for each document, or none")

    def _check_texts(self, texts: Sequence[Sequence[int]], name: str) -> None:
        if not 1 <= len(texts) <= MAX_INPUTS:
            raise SpecError(name, f"has {len(texts):,} entries, and must have 1 to {MAX_INPUTS:,}")
        vocabulary, longest = self.encoder.vocab_size, self.max_tokens
        for index, ids in enumerate(texts):
            if not 1 <= len(ids) <= longest:
                raise SpecError(name, f"entry {index} has {len(ids):,} tokens, and must have 1 to {longest:,}")
            if min(ids) < 0 or max(ids) >= vocabulary:
                raise SpecError(name, f"entry {index} has a token id outside of 0 to {vocabulary - 1:,}")

    def vectors(self, frame: Embed, ids: Sequence[int], hidden: Float32) -> Vectors:
        """Return what an Embed wants of one text, from its hidden states [tokens, hidden]."""
        dense = many = np.zeros(0, np.float32)
        names: list[int] = []
        weights = np.zeros(0, np.float32)
        if "dense" in frame.outputs:
            dense = self.pooler(hidden, skip=frame.prompt_tokens, dimensions=frame.dimensions,
                                normalised=frame.normalise)
        if "sparse" in frame.outputs and self.sparse_head is not None:
            names, weights = sparse_weights(hidden, ids, self.sparse_head, self.unused_ids)
        if "multi_vector" in frame.outputs:
            many = token_vectors(hidden, self.vector_head)
        return Vectors(dense=_bytes(dense), sparse_ids=names, sparse_weights=_bytes(weights),
                       multi_vector=_bytes(many), multi_vector_size=self.vector_size if many.size else 0,
                       tokens=len(ids))

    def side(self, frame: Score, hidden: Float32) -> Float32:
        """Return what a Score keeps of one text: its score [1], or its vectors until the other side is there."""
        if frame.method == "late_interaction":
            return token_vectors(hidden, self.vector_head)
        if frame.method == "cosine":
            return self.pooler(hidden, normalised=True)
        head = self.classifier or self.yes_no
        assert head is not None
        return np.array([head(hidden, raw=frame.raw)], np.float32)

    def scores(self, frame: Score, sides: Sequence[Float32]) -> Float32:
        """Return the scores [documents] from the sides of all its texts, queries first."""
        queries, documents = sides[: len(frame.queries)], sides[len(frame.queries) :]
        if not queries:
            return np.concatenate(documents)
        compare = max_sim if frame.method == "late_interaction" else np.dot
        return np.array([compare(queries[i % len(queries)], document) for i, document in enumerate(documents)],
                        np.float32)


def _bytes(values: Float32) -> bytes:
    if not np.isfinite(values).all():
        raise FloatingPointError("the model gave values that are not finite numbers")
    return np.ascontiguousarray(values, "<f4").tobytes()
