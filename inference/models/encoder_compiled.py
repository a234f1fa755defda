"""Runs BERT-shaped encoders through the compiled step: packs their weights, keeps the buffers, shapes the batches."""

import numpy as np
import numpy.typing as npt

from inference.encoders.spec import EncoderSpec
from inference.encoders.weights import EncoderWeights, Linear, Norm
from inference.kernels.dot8 import GROUP
from inference.kernels.linear import PANEL
from inference.kernels.projection import Packed8, Projection, pack8
from inference.kernels.team import SYNC_SLOTS
from inference.kernels.text_attention import KEY_LANES, QUERY_ROWS
from inference.layers.linear import fill, fill_bias, packed_bytes, packed_room
from inference.models.encoder_batch import Float32, TextBatch
from inference.models.encoder_step import BLOCK, Norms, Room, Tables, Texts, run_texts
from inference.spec import Mode

FIRST_TOKENS = 2048


def can_compile(spec: EncoderSpec) -> bool:
    """Whether an encoder has the shape that the compiled step runs: BERT's, in sizes that fill the panels."""
    plain = spec.position_rows > 0 and spec.rope_theta is None and not spec.relative_buckets
    blocks = not spec.pre_norm and not spec.gated and spec.activation == "gelu" and spec.norm_bias
    sizes = spec.head_dim % KEY_LANES == spec.hidden_size % PANEL == spec.intermediate_size % PANEL == 0
    return plain and blocks and sizes


class CompiledEncoder:
    """An encoder in packed weights. mode: `float32`, or `int8` with 8-bit products in groups of 16 inputs."""

    def __init__(self, spec: EncoderSpec, weights: EncoderWeights, *, mode: Mode, threads: int) -> None:
        self.hidden_size, self.max_tokens, self.vocab_size = spec.hidden_size, spec.max_position, spec.vocab_size
        self._spec, self._threads = spec, threads
        hidden = spec.hidden_size
        assert weights.position is not None
        types = weights.token_type if weights.token_type is not None else np.zeros((1, hidden), np.float32)
        self._tables = Tables(*(np.ascontiguousarray(table, np.float32)
                                for table in (weights.word, weights.position, types)))
        self._norms = _norms(weights)
        self._projections = _projections(spec, weights, mode)
        self.weights_bytes = sum(table.nbytes for table in (*self._tables, *self._norms)) + sum(
            sum(part.nbytes for part in packed) if isinstance(packed, Packed8) else packed_bytes(packed)
            for packed in self._projections)
        self._room: Room | None = None

    def encode(self, batch: TextBatch) -> Float32:
        """Return the last hidden state of every token, [tokens, hidden]."""
        tokens, spec = len(batch.token_ids), self._spec
        room = self._room_for(tokens, int(batch.lengths.max(initial=1)))
        known = len(self._tables.token_type)
        types = batch.token_types if known > 1 else np.zeros(tokens, np.int32)
        texts = Texts(batch.token_ids, batch.positions + np.int32(spec.position_offset), types, batch.starts)
        qkv, output, up, down = self._projections
        run_texts(texts, self._tables, self._norms, np.float32(spec.norm_eps), spec.num_heads, qkv, output, up, down,
                  room, self._threads)
        return room.stream[:tokens].copy()

    def _room_for(self, tokens: int, longest: int) -> Room:
        """Return buffers for so many tokens; they grow, and are kept."""
        room = self._room
        if room is None or len(room.stream) < tokens or room.scores.shape[2] < longest:
            had = (0, 0) if room is None else (len(room.stream), room.scores.shape[2])
            self._room = room = _make_room(self._spec, max(tokens, FIRST_TOKENS, had[0]), max(longest, had[1]),
                                           self._threads)
        return room


def _make_room(spec: EncoderSpec, tokens: int, longest: int, members: int) -> Room:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    parts, widest = -(-longest // KEY_LANES), max(hidden, inner)

    def floats(*shape: int) -> Float32:
        return np.zeros(shape, np.float32)

    return Room(
        stream=floats(tokens, hidden), qkv=floats(tokens, 3 * hidden), attended=floats(tokens, hidden),
        mid=floats(members, BLOCK, hidden), inner=floats(members, BLOCK, inner),
        keys=floats(members, parts, spec.head_dim, KEY_LANES), scores=floats(members, QUERY_ROWS, parts * KEY_LANES),
        codes=np.zeros((members, BLOCK, widest), np.int8), scales=floats(members, BLOCK, widest // GROUP),
        firsts=np.zeros((members, BLOCK, widest // GROUP), np.int32), zeros=floats(max(3 * hidden, inner)),
        sync=np.zeros(SYNC_SLOTS, np.int64),
    )  # fmt: skip


def _vectors(norm: Norm) -> tuple[Float32, Float32]:
    assert norm.bias is not None
    return np.array(norm.weight, np.float32), np.array(norm.bias, np.float32)


def _norms(weights: EncoderWeights) -> Norms:
    attention = [_vectors(layer.attention_norm) for layer in weights.layers if layer.attention_norm is not None]
    mlp = [_vectors(layer.mlp_norm) for layer in weights.layers]
    return Norms(*_vectors(weights.embedding_norm), *(np.stack(part) for part in zip(*attention, strict=True)),
                 *(np.stack(part) for part in zip(*mlp, strict=True)))


def _projections(spec: EncoderSpec, weights: EncoderWeights, mode: Mode) -> tuple[Projection, ...]:
    """Pack (qkv, output, up, down) of all layers; queries carry the softmax factor."""
    layers = weights.layers
    inputs = [weights.embedding_norm, *(layer.mlp_norm for layer in layers[:-1])]
    attended = [layer.attention_norm for layer in layers]
    chains: list[tuple[list[Linear], list[Norm | None]]] = [
        ([_scaled(spec, layer.qkv) for layer in layers], list(inputs)),
        ([layer.output for layer in layers], [None] * len(layers)),
        ([layer.up for layer in layers], list(attended)),
        ([layer.down for layer in layers], [None] * len(layers)),
    ]
    return tuple(_pack8(linears, norms) if mode == "int8" else _pack(linears) for linears, norms in chains)


def _scaled(spec: EncoderSpec, qkv: Linear) -> Linear:
    factor = np.ones(3 * spec.hidden_size, np.float32)
    factor[: spec.hidden_size] = spec.head_dim**-0.5
    return Linear(qkv.weight * factor[:, None], _bias(qkv) * factor)


def _bias(linear: Linear) -> Float32:
    return np.zeros(len(linear.weight), np.float32) if linear.bias is None else linear.bias


def _pack(linears: list[Linear]) -> Projection:
    outputs, inputs = linears[0].weight.shape
    packed = packed_room(layers=len(linears), panels=outputs // PANEL, inputs=inputs, mode="float32")
    for layer, linear in enumerate(linears):
        fill(packed, layer, linear.weight)
        fill_bias(packed, layer, _bias(linear))
    return packed


def _pack8(linears: list[Linear], norms: list[Norm | None]) -> Projection:
    factors = [_balance(linear.weight, norm) for linear, norm in zip(linears, norms, strict=True)]
    return pack8([np.asarray(linear.weight) for linear in linears], [_bias(linear) for linear in linears], factors)


def _balance(weight: npt.NDArray[np.float32], norm: Norm | None) -> Float32:
    """Return what to multiply each input by, so that inputs and weights are about as hard to round (SmoothQuant).

    A norm's output has the root mean square sqrt(weight^2 + bias^2) in each element, for normal inputs. Behind other
    layers nothing is known, and nothing is changed.
    """
    if norm is None or norm.bias is None:
        return np.ones(weight.shape[1], np.float32)
    size = np.maximum(np.sqrt(np.square(norm.weight) + np.square(norm.bias)), 1e-5)
    steep = np.maximum(np.sqrt(np.mean(np.square(weight), axis=0)), 1e-5)
    factors: Float32 = np.sqrt(steep / size).astype(np.float32)
    return factors
