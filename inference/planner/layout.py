"""How a model lies in memory: what weights, caches and activations take, for any engine that stores plain arrays."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from inference.planner.precision import KV_BYTES, Format
from inference.planner.result import Line
from inference.planner.shape import Mixer, ModelShape
from inference.spec import SpecError

STATE_BYTES = 4  # recurrent states are kept in float32, since errors would add up over a long text
LOGIT_BYTES = 4


class Layout(Protocol):
    """What an engine keeps for a model, in bytes of one device. `…_line` has the arithmetic of the same figure."""

    dtype: str
    kv_dtype: str

    def weights_bytes(self, context: int) -> int: ...

    def weights_lines(self, context: int) -> Iterator[Line]: ...

    @property
    def kv_bytes_per_token(self) -> int: ...

    def kv_lines(self, context: int) -> Iterator[Line]: ...

    def request_bytes(self, context: int) -> int:
        """Return what one request of this many tokens keeps: keys and values, capped by windows, and states."""
        ...

    def activation_bytes(self, context: int, concurrency: int) -> int: ...

    def activation_formula(self, context: int, concurrency: int) -> str: ...


@dataclass(frozen=True, kw_only=True)
class StoredWeights:
    """What the headers of real files say: bytes of all tensors, and parameters where their types are plain numbers."""

    nbytes: int
    parameters: int | None
    dtypes: str


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """The parameters of one tensor-parallel rank: the layers' matrices, those of experts among them, and the rest."""

    matrices: int
    experts: int
    rest: int

    @property
    def total(self) -> int:
        return self.matrices + self.rest


def rank_share(shape: ModelShape, tp: int) -> RankShare:
    """Return what one of tp ranks holds. Raises SpecError when the heads can't be shared out."""
    if tp < 1 or shape.heads % tp:
        raise SpecError("tp", f"{tp} ranks can't share {shape.heads} attention heads evenly")
    matrices = experts = 0
    rest = -(-shape.embedding // tp) + -(-shape.head // tp) + shape.positions + shape.pooler + shape.other
    for layer in shape.layers:
        for mixer in layer.mixers:
            matrices += -(-mixer.parameters // tp) + _kv_share(mixer, tp)
            rest += mixer.replicated
        own = -(-layer.mlp.experts * layer.mlp.expert // tp)
        experts += own
        matrices += own + -(-layer.mlp.dense // tp)
        rest += layer.norms + layer.mlp.router
    return RankShare(matrices=matrices, experts=experts, rest=rest)


def heads_of_rank(mixer: Mixer, tp: int) -> int:
    """Return the KV heads that one rank keeps: they are shared out until each rank has one; a latent is kept whole."""
    return 1 if mixer.kind == "latent" else -(-mixer.kv_heads // tp)


def _kv_share(mixer: Mixer, tp: int) -> int:
    return mixer.kv_parameters * heads_of_rank(mixer, tp) // mixer.kv_heads if mixer.kv_heads else 0


class PlainLayout:
    """Weights in one format, keys and values in another, nothing padded: what GPU engines do."""

    def __init__(self, shape: ModelShape, *, weights: Format, kv_dtype: str, tp: int, batched_tokens: int,
                 stored: StoredWeights | None) -> None:
        self.shape, self.tp, self.stored = shape, tp, stored
        self.dtype = "as stored" if stored else weights.name
        self.kv_dtype = kv_dtype
        self._weights = weights
        self._share = rank_share(shape, tp)
        self._batched_tokens = batched_tokens
        self._kv_size = KV_BYTES[kv_dtype]

    def weights_bytes(self, context: int) -> int:
        share = self._share
        if self.stored:
            return round(self.stored.nbytes * (share.total / self.shape.total if self.tp > 1 else 1))
        compact = {"all": share.total, "linear": share.matrices, "experts": share.experts}[self._weights.parts]
        return math.ceil(compact * self._weights.bytes) + (share.total - compact) * 2

    def weights_lines(self, context: int) -> Iterator[Line]:
        share, total = self._share, self.shape.total
        rank = f" on each of {self.tp} ranks" if self.tp > 1 else ""
        if self.stored:
            formula = f"all tensors in the files ({self.stored.dtypes})"
            if self.tp > 1:
                formula += f" × {share.total:,} / {total:,} parameters{rank}"
        elif self._weights.parts == "all":
            formula = f"{share.total:,} parameters{rank} × {self._weights.bytes:g} bytes"
        else:
            compact = share.matrices if self._weights.parts == "linear" else share.experts
            what = "in the layers' matrices" if self._weights.parts == "linear" else "in experts"
            formula = (f"{compact:,} parameters {what}{rank} × {self._weights.bytes:g} bytes "
                       f"+ {share.total - compact:,} others × 2 bytes")
        yield Line("Weights", formula, self.weights_bytes(context), "bytes")

    def _kv_mixers(self) -> list[Mixer]:
        """The mixers that keep something for each token; an encoder's keep nothing."""
        return [mixer for mixer in self.shape.mixers if mixer.kv_elements]

    def _token_bytes(self, mixer: Mixer) -> int:
        return heads_of_rank(mixer, self.tp) * mixer.kv_elements * self._kv_size

    @property
    def kv_bytes_per_token(self) -> int:
        return sum(map(self._token_bytes, self._kv_mixers()))

    def kv_lines(self, context: int) -> Iterator[Line]:
        mixers = self._kv_mixers()
        if mixers:
            first, count = mixers[0], len(mixers)
            heads = heads_of_rank(first, self.tp)
            what = (f"{count} layers × {first.kv_elements} (one latent and one rotated key for all heads)"
                    if first.kind == "latent" else
                    f"2 (key and value) × {count} layers × {heads} KV heads × {first.kv_elements // 2}")
            yield Line("KV cache of a token", f"{what} × {self._kv_size} bytes ({self.kv_dtype})",
                       self.kv_bytes_per_token, "bytes")
        for window, layers in sorted(_by_window(mixers).items()):
            kept = min(context, window)
            yield Line("KV cache of a request, sliding layers",
                       f"{len(layers)} layers keep min({context:,}, {window:,}) = {kept:,} tokens × "
                       f"{self._token_bytes(layers[0]):,} bytes", sum(map(self._token_bytes, layers)) * kept, "bytes")
        if state := self._state_bytes():
            linear = [mixer for mixer in self.shape.mixers if mixer.kind == "linear"]
            yield Line("States of a request, linear layers",
                       f"{len(linear)} layers × ({linear[0].state_elements:,} × {STATE_BYTES} bytes + "
                       f"{linear[0].conv_elements:,} × {self._kv_size} bytes)"
                       + (f" / {self.tp} ranks" if self.tp > 1 else ""), state, "bytes")

    def _state_bytes(self) -> int:
        return sum(-(-(mixer.state_elements * STATE_BYTES + mixer.conv_elements * self._kv_size) // self.tp)
                   for mixer in self.shape.mixers if mixer.kind == "linear")

    def request_bytes(self, context: int) -> int:
        kept = sum(self._token_bytes(mixer) * min(context, mixer.window or context) for mixer in self._kv_mixers())
        return kept + self._state_bytes()

    def _step_tokens(self, context: int, concurrency: int) -> int:
        """Tokens of the largest step: a decoder takes prompts in chunks, an encoder whole texts."""
        tokens = context * concurrency
        return tokens if self.shape.kind == "encoder" else max(concurrency, min(tokens, self._batched_tokens))

    def _row_elements(self) -> int:
        """Numbers that a layer holds at once for a token: the stream, its norm, queries, keys and values, the MLP's."""
        shape = self.shape
        queries = shape.heads * shape.head_dim
        inner = max((layer.mlp.inner for layer in shape.layers), default=0)
        return 3 * shape.hidden + (2 * queries + 2 * shape.kv_heads * shape.head_dim + inner) // self.tp

    def activation_bytes(self, context: int, concurrency: int) -> int:
        size = 4 if self._weights.bits > 16 else 2
        logits = 0 if self.shape.kind == "encoder" else concurrency * self.shape.vocabulary * LOGIT_BYTES
        return self._step_tokens(context, concurrency) * self._row_elements() * size + logits

    def activation_formula(self, context: int, concurrency: int) -> str:
        size = 4 if self._weights.bits > 16 else 2
        formula = (f"{self._step_tokens(context, concurrency):,} tokens in a step × {self._row_elements():,} numbers × "
                   f"{size} bytes")
        if self.shape.kind == "encoder":
            return formula
        return f"{formula} + {concurrency:,} × {self.shape.vocabulary:,} logits × {LOGIT_BYTES} bytes"


def _by_window(mixers: list[Mixer]) -> dict[int, list[Mixer]]:
    groups: dict[int, list[Mixer]] = {}
    for mixer in mixers:
        if mixer.window is not None:
            groups.setdefault(mixer.window, []).append(mixer)
    return groups
