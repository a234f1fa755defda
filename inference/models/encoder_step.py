"""The forward pass of a BERT-shaped encoder on the CPU: a team runs all layers of a batch of unpadded texts.

A step is one compiled call. Within a layer there are two stages with a barrier behind each: attention, whose items are
(text, head), and everything else, whose items are blocks of rows that stay in a core's cache from the output projection
to the next layer's queries, keys and values. Whoever is free takes the next item.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange, set_num_threads

from inference.kernels.normalise import gelu_row, layer_norm_row
from inference.kernels.projection import Projection, project
from inference.kernels.team import barrier, next_item
from inference.kernels.text_attention import attend_text
from inference.kernels.vector import address

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

BLOCK = 48
"""Rows of an item, a multiple of every tile's rows."""


class Tables(NamedTuple):
    """Rows that are looked up: [vocabulary, hidden], [positions, hidden], [token types, hidden]."""

    word: Float32
    position: Float32
    token_type: Float32


class Norms(NamedTuple):
    """Weights and biases of the norms: [hidden], and [layers, hidden] of those behind attention and MLP."""

    embedding_weight: Float32
    embedding_bias: Float32
    attention_weight: Float32
    attention_bias: Float32
    mlp_weight: Float32
    mlp_bias: Float32


class Texts(NamedTuple):
    """One batch: per token its id, row of the position table and type, and [texts + 1] borders."""

    token_ids: Int32
    positions: Int32
    token_types: Int32
    starts: Int32


class Room(NamedTuple):
    """What stages pass on, [tokens, …], and each member's scratch, [members, …]."""

    stream: Float32  # [tokens, hidden]
    qkv: Float32  # [tokens, 3 * hidden]
    attended: Float32  # [tokens, hidden]
    mid: Float32  # [members, BLOCK, hidden]
    inner: Float32  # [members, BLOCK, inner]
    keys: Float32  # [members, parts, head_dim, KEY_LANES]
    scores: Float32  # [members, QUERY_ROWS, most tokens]
    codes: npt.NDArray[np.int8]  # [members, BLOCK, widest input]
    scales: Float32  # [members, BLOCK, groups of the widest input]
    firsts: Int32  # [members, BLOCK, groups of the widest input]
    zeros: Float32  # [widest output]
    sync: Int64


@njit
def _embed_block(texts, tables, norms, epsilon, stream, first, count):
    """stream rows = norm(word + position + type)."""
    hidden = stream.shape[1]
    for row in range(first, first + count):
        word = tables.word[texts.token_ids[row]]
        position = tables.position[texts.positions[row]]
        kind = tables.token_type[texts.token_types[row]]
        for i in range(hidden):
            stream[row, i] = (word[i] + kind[i]) + position[i]
        at = address(stream) + row * stream.strides[0]
        layer_norm_row(at, hidden, address(norms.embedding_weight), address(norms.embedding_bias), epsilon, at)


@njit
def _norm_block(x, stride, count, hidden, weight, bias, epsilon):
    for row in range(count):
        at = x + row * stride
        layer_norm_row(at, hidden, address(weight), address(bias), epsilon, at)


@njit
def _queries_block(stream, room, qkv, layer, first, count, member):
    """qkv rows of a block from its stream."""
    project(
        address(stream) + first * stream.strides[0], stream.strides[0], count, qkv, layer,
        address(room.qkv) + first * room.qkv.strides[0], room.qkv.strides[0], address(room.zeros), 0,
        room.codes[member], room.scales[member], room.firsts[member],
    )  # fmt: skip


@njit
def _rows_block(room, norms, epsilon, output, up, down, layer, first, count, member):
    """Everything of a layer behind its attention, for a block of rows of the stream."""
    stream, hidden = room.stream, room.stream.shape[1]
    mid, inner = room.mid[member], room.inner[member]
    codes, scales, firsts = room.codes[member], room.scales[member], room.firsts[member]
    at, stride = address(stream) + first * stream.strides[0], stream.strides[0]
    project(
        address(room.attended) + first * room.attended.strides[0], room.attended.strides[0], count, output, layer,
        address(mid), mid.strides[0], at, stride, codes, scales, firsts,
    )  # fmt: skip
    _norm_block(address(mid), mid.strides[0], count, hidden, norms.attention_weight[layer],
                norms.attention_bias[layer], epsilon)
    project(
        address(mid), mid.strides[0], count, up, layer, address(inner), inner.strides[0], address(room.zeros), 0,
        codes, scales, firsts,
    )  # fmt: skip
    for row in range(count):
        gelu_row(address(inner) + row * inner.strides[0], inner.shape[1])
    project(
        address(inner), inner.strides[0], count, down, layer, at, stride, address(mid), mid.strides[0],
        codes, scales, firsts,
    )  # fmt: skip
    _norm_block(at, stride, count, hidden, norms.mlp_weight[layer], norms.mlp_bias[layer], epsilon)


@njit
def _member(texts, tables, norms, epsilon, heads, qkv, output, up, down, room, member, members):
    """One member's part of a step."""
    sync = address(room.sync)
    tokens, count_texts = texts.token_ids.shape[0], texts.starts.shape[0] - 1
    hidden, layers = room.stream.shape[1], norms.mlp_weight.shape[0]
    dim = hidden // heads
    block = next_item(sync)
    while block * BLOCK < tokens:
        first = block * BLOCK
        count = min(BLOCK, tokens - first)
        _embed_block(texts, tables, norms, epsilon, room.stream, first, count)
        _queries_block(room.stream, room, qkv, 0, first, count, member)
        block = next_item(sync)
    barrier(sync, members)
    for layer in range(layers):
        item = next_item(sync)
        while item < count_texts * heads:
            text, head = item // heads, item % heads
            first = texts.starts[text]
            attend_text(
                room.qkv, first, texts.starts[text + 1] - first, head, dim, hidden, room.keys[member],
                room.scores[member], room.attended,
            )  # fmt: skip
            item = next_item(sync)
        barrier(sync, members)
        block = next_item(sync)
        while block * BLOCK < tokens:
            first = block * BLOCK
            count = min(BLOCK, tokens - first)
            _rows_block(room, norms, epsilon, output, up, down, layer, first, count, member)
            if layer + 1 < layers:
                _queries_block(room.stream, room, qkv, layer + 1, first, count, member)
            block = next_item(sync)
        barrier(sync, members)


@njit(parallel=True, nogil=True, cache=True)
def _run_team(texts, tables, norms, epsilon, heads, qkv, output, up, down, room, members):
    for member in prange(members):
        _member(texts, tables, norms, epsilon, heads, qkv, output, up, down, room, np.int64(member), members)


def run_texts(texts: Texts, tables: Tables, norms: Norms, epsilon: np.float32, heads: int, qkv: Projection,
              output: Projection, up: Projection, down: Projection, room: Room, members: int) -> None:
    """Run a batch with that many threads: the last hidden states go to the first rows of room.stream.

    qkv gives scaled queries. room must hold the batch's tokens and its longest text. Every member must run at the same
    time, so `members` is at most numba's number of threads.
    """
    set_num_threads(members)
    room.sync[:] = 0
    _run_team(texts, tables, norms, epsilon, heads, qkv, output, up, down, room, members)
