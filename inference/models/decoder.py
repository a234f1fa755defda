"""The forward pass of a decoder on the CPU: every member of a team runs all layers on its share, with barriers between.

A step is one compiled call. Its data are named tuples of arrays: the weights, the shape, the KV pool, the work of the
step and the buffers that the stages pass on.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange, set_num_threads, types
from numba.extending import overload

from inference.kernels.attention import MOST_ROWS, attend, gather_queries
from inference.kernels.linear import PANEL, Packed, linear_panels, narrow_row, operand
from inference.kernels.pool import Pool
from inference.kernels.rowwise import embed_row, rms_norm_row, rotate_heads, write_kv
from inference.kernels.team import barrier, next_item, share
from inference.kernels.vector import LANES, address, silu_multiply

Float32 = npt.NDArray[np.float32]
Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

ROW_CHUNK = 48
"""Rows that one thread takes through a panel at a time, a multiple of every tile's rows."""


class Shape(NamedTuple):
    """Sizes of the decoder, in elements."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: np.float32
    softmax_factor: np.float32


class Weights(NamedTuple):
    """All weights. Norms are [layers, hidden]; gate_up has a gate panel and its up panel in turn."""

    embedding: Packed
    attention_norm: Float32
    qkv: Packed
    output: Packed
    mlp_norm: Float32
    gate_up: Packed
    down: Packed
    final_norm: Float32
    head: Packed
    cosine: Float32  # [positions, head_dim / 2]
    sine: Float32


class Work(NamedTuple):
    """One step: a StepBatch's arrays, and the attention items that they make.

    item_sequence, item_first, item_count: [items], the sequence of a query tile, its first flat row, its rows.
    """

    token_ids: Int32
    positions: Int32
    slots: Int32
    block_tables: Int32
    logit_rows: Int32
    item_sequence: Int32
    item_first: Int32
    item_count: Int32


class Buffers(NamedTuple):
    """What stages pass on, [rows, padded size], and each member's scratch, [members, …]. Made once."""

    stream: Float32
    normed: Float32
    qkv: Float32
    attended: Float32
    activated: Float32
    logits: Float32
    gate_up: Float32  # [members, ROW_CHUNK, 2 * PANEL]
    queries: Float32  # [members, item rows, head_dim]
    scores: Float32  # [members, item rows, most keys + 16]
    sums: Float32  # [members, item rows, padded head_dim]
    zeros: Float32  # [widest output that has no residual]
    narrow: Int16  # [rows, widest input], what int8 weights are multiplied with
    narrow_scale: Float32  # [rows]
    sync: Int64


@njit
def _linear(x, rows, packed, layer, out, residual, residual_stride, buffers, member, members):
    """A member's share of a linear layer: pairs of (panel, chunk of rows)."""
    chunks = (rows + ROW_CHUNK - 1) // ROW_CHUNK
    panels = packed.weights.shape[1]
    inputs, scale = operand(packed, x, buffers.narrow), address(buffers.narrow_scale)
    if chunks == 1:
        first, last = share(panels, member, members)
        at = first * PANEL * 4
        linear_panels(
            address(inputs), inputs.strides[0], scale, rows, packed, layer, first, last,
            address(out) + at, out.strides[0], residual + at, residual_stride,
        )  # fmt: skip
        return
    first, last = share(panels * chunks, member, members)
    for item in range(first, last):
        panel, row = item // chunks, item % chunks * ROW_CHUNK
        at = panel * PANEL * 4
        linear_panels(
            address(inputs) + row * inputs.strides[0], inputs.strides[0], scale + row * 4, min(ROW_CHUNK, rows - row),
            packed, layer, panel, panel + 1, address(out) + row * out.strides[0] + at, out.strides[0],
            residual + row * residual_stride + at, residual_stride,
        )  # fmt: skip


@njit
def _gated(x, rows, packed, layer, buffers, member, members):
    """A member's share of activated = silu(x @ gate) * (x @ up), a pair of panels and a chunk of rows at a time."""
    chunks = (rows + ROW_CHUNK - 1) // ROW_CHUNK
    inputs, scale = operand(packed, x, buffers.narrow), address(buffers.narrow_scale)
    scratch, out, zeros = buffers.gate_up[member], buffers.activated, address(buffers.zeros)
    first, last = share(packed.weights.shape[1] // 2 * chunks, member, members)
    for item in range(first, last):
        pair, row = item // chunks, item % chunks * ROW_CHUNK
        count = min(ROW_CHUNK, rows - row)
        linear_panels(
            address(inputs) + row * inputs.strides[0], inputs.strides[0], scale + row * 4, count, packed, layer,
            2 * pair, 2 * pair + 2, address(scratch), scratch.strides[0], zeros, 0,
        )  # fmt: skip
        for i in range(count):
            gate = address(scratch) + i * scratch.strides[0]
            to = address(out) + (row + i) * out.strides[0] + pair * PANEL * 4
            for lane in range(0, PANEL * 4, LANES * 4):
                silu_multiply(gate + lane, gate + PANEL * 4 + lane, to + lane)


def _narrow(packed, x, rows, k, buffers, member, members):
    """Make x [rows, k] ready for packed weights, and wait until all members have: float32 weights need neither."""


@overload(_narrow)
def _narrow_implementation(packed, x, rows, k, buffers, member, members):
    if packed.types[0].dtype == types.float32:
        return lambda packed, x, rows, k, buffers, member, members: None

    def implementation(packed, x, rows, k, buffers, member, members):
        first, last = share(rows, member, members)
        for row in range(first, last):
            narrow_row(packed, x, k, buffers.narrow, buffers.narrow_scale, row)
        barrier(address(buffers.sync), members)

    return implementation


@njit
def _attention(work, shape, layer, pool, buffers, member):
    """Attention items, taken in turn by whoever is free: their sizes differ."""
    queries, scores, sums = buffers.queries[member], buffers.scores[member], buffers.sums[member]
    group, dim = shape.heads // shape.kv_heads, shape.head_dim
    items = work.item_sequence.shape[0] * shape.kv_heads
    item = next_item(address(buffers.sync))
    while item < items:
        tile, head = item // shape.kv_heads, item % shape.kv_heads
        first, count = work.item_first[tile], work.item_count[tile]
        gather_queries(buffers.qkv, first, count, head, group, dim, shape.softmax_factor, queries)
        table = work.block_tables[work.item_sequence[tile]]
        attend(
            queries, count * group, group, work.positions[first], table, layer, head,
            pool.keys, pool.values, scores, sums,
        )  # fmt: skip
        for row in range(count * group):
            start = (head * group + row % group) * dim
            for i in range(dim):
                buffers.attended[first + row // group, start + i] = sums[row, i]
        item = next_item(address(buffers.sync))


@njit
def _norm_share(rows, shape, weight, packed, buffers, member, members):
    """Norm this member's rows of the stream, ready for packed weights."""
    first, last = share(rows, member, members)
    for row in range(first, last):
        rms_norm_row(buffers.stream[row], shape.hidden, weight, shape.epsilon, buffers.normed[row])
        narrow_row(packed, buffers.normed, shape.hidden, buffers.narrow, buffers.narrow_scale, row)


@njit
def _rotate_and_write(work, shape, weights, layer, pool, buffers, member, members):
    """Rotate queries and keys of this member's rows and put keys and values into the pool."""
    first, last = share(work.token_ids.shape[0], member, members)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for row in range(first, last):
        position = work.positions[row]
        qkv = buffers.qkv[row]
        rotate_heads(
            qkv[: queries + keys], shape.heads + shape.kv_heads, shape.head_dim,
            weights.cosine[position], weights.sine[position],
        )  # fmt: skip
        write_kv(qkv[queries : queries + keys], qkv[queries + keys :], work.slots[row], layer, pool.keys, pool.values)


@njit
def _layer(work, shape, weights, layer, pool, buffers, member, members):
    rows = work.token_ids.shape[0]
    sync, zeros = address(buffers.sync), address(buffers.zeros)
    stream, stride = address(buffers.stream), buffers.stream.strides[0]
    _norm_share(rows, shape, weights.attention_norm[layer], weights.qkv, buffers, member, members)
    barrier(sync, members)
    _linear(buffers.normed, rows, weights.qkv, layer, buffers.qkv, zeros, 0, buffers, member, members)
    barrier(sync, members)
    _rotate_and_write(work, shape, weights, layer, pool, buffers, member, members)
    barrier(sync, members)
    _attention(work, shape, layer, pool, buffers, member)
    barrier(sync, members)
    _narrow(weights.output, buffers.attended, rows, shape.heads * shape.head_dim, buffers, member, members)
    _linear(buffers.attended, rows, weights.output, layer, buffers.stream, stream, stride, buffers, member, members)
    barrier(sync, members)
    _norm_share(rows, shape, weights.mlp_norm[layer], weights.gate_up, buffers, member, members)
    barrier(sync, members)
    _gated(buffers.normed, rows, weights.gate_up, layer, buffers, member, members)
    barrier(sync, members)
    _narrow(weights.down, buffers.activated, rows, shape.inner, buffers, member, members)
    _linear(buffers.activated, rows, weights.down, layer, buffers.stream, stream, stride, buffers, member, members)
    barrier(sync, members)


@njit
def _member(work, shape, weights, pool, buffers, member, members):
    """One member's part of a step."""
    sync = address(buffers.sync)
    first, last = share(work.token_ids.shape[0], member, members)
    for row in range(first, last):
        embed_row(work.token_ids[row], weights.embedding, shape.hidden, buffers.stream[row])
    for layer in range(shape.layers):
        _layer(work, shape, weights, layer, pool, buffers, member, members)
    wanted = work.logit_rows.shape[0]
    first, last = share(wanted, member, members)
    for row in range(first, last):
        x = buffers.stream[work.logit_rows[row]]
        rms_norm_row(x, shape.hidden, weights.final_norm, shape.epsilon, buffers.normed[row])
        narrow_row(weights.head, buffers.normed, shape.hidden, buffers.narrow, buffers.narrow_scale, row)
    barrier(sync, members)
    if wanted > 0:
        zeros = address(buffers.zeros)
        _linear(buffers.normed, wanted, weights.head, 0, buffers.logits, zeros, 0, buffers, member, members)


@njit(parallel=True, nogil=True, cache=True)
def _run_team(
    work, shape, embedding, attention_norm, qkv, output, mlp_norm, gate_up, down, final_norm, head, cosine, sine,
    pool, buffers, members,
):  # fmt: skip
    # A tuple of tuples can't cross into the threads, so the weights come in parts.
    for member in prange(members):
        weights = Weights(
            embedding, attention_norm, qkv, output, mlp_norm, gate_up, down, final_norm, head, cosine, sine
        )
        _member(work, shape, weights, pool, buffers, np.int64(member), members)


def run_step(work: Work, shape: Shape, weights: Weights, pool: Pool, buffers: Buffers, members: int) -> None:
    """Run one step with that many threads: keys and values go to the pool, logits to the first rows of buffers.logits.

    Every member must run at the same time, so `members` is at most numba's number of threads.
    """
    set_num_threads(members)
    _run_team(work, shape, *weights, pool, buffers, members)


def item_rows(group: int) -> tuple[int, int]:
    """Return (queries in a tile, rows of a tile) for a group of that many query heads."""
    queries = max(1, MOST_ROWS // group)
    return queries, queries * group
