"""Paged attention on the CPU: causal softmax attention over keys and values that lie in blocks of a pool.

One item of work is (query tile of a sequence, KV head): its rows are the queries of the tile times the query heads of
the group, which share every key and value read. Scores of a row are computed whole, then exponentiated, then summed
with the values in order of position, so a row's bits do not depend on the tile, the chunk or the block table.
"""

import numpy as np
from numba import njit

from inference.kernels.tile import ROWS_A, ROWS_B, ROWS_C, ROWS_D, VECTORS, make_tile
from inference.kernels.vector import LANES, VECTOR_BYTES, address, exponentiate_row

MOST_ROWS = 24
"""Rows of one item, unless a group of query heads alone is larger. A multiple of every tile's rows."""

_score_a = make_tile(ROWS_A, 1, 1, "plain")
_score_b = make_tile(ROWS_B, 1, 1, "plain")
_score_c = make_tile(ROWS_C, 1, 1, "plain")
_score_d = make_tile(ROWS_D, 1, 1, "plain")
_score_one = make_tile(1, 1, 1, "plain")
_value_a = make_tile(ROWS_A, VECTORS, 1, "accumulate")
_value_b = make_tile(ROWS_B, VECTORS, 1, "accumulate")
_value_c = make_tile(ROWS_C, VECTORS, 1, "accumulate")
_value_d = make_tile(ROWS_D, VECTORS, 1, "accumulate")
_value_one = make_tile(1, VECTORS, 1, "accumulate")
VALUE_LANES = VECTORS * LANES
"""A pool's values are padded to a multiple of this."""


@njit
def _score_rows(queries, stride, rows, keys, offset, dim, step, out, out_stride):
    """Scores of all rows against 16 keys [dim, 16] at a byte offset of the pool."""
    row = 0
    while row < rows:
        left = rows - row
        q, to = queries + row * stride, out + row * out_stride
        if left >= ROWS_A:
            _score_a(q, stride, keys, (offset,), dim, step, to, out_stride, 0, ())
            row += ROWS_A
        elif left >= ROWS_B:
            _score_b(q, stride, keys, (offset,), dim, step, to, out_stride, 0, ())
            row += ROWS_B
        elif left >= ROWS_C:
            _score_c(q, stride, keys, (offset,), dim, step, to, out_stride, 0, ())
            row += ROWS_C
        elif left >= ROWS_D:
            _score_d(q, stride, keys, (offset,), dim, step, to, out_stride, 0, ())
            row += ROWS_D
        else:
            _score_one(q, stride, keys, (offset,), dim, step, to, out_stride, 0, ())
            row += 1


@njit
def _value_rows(weights, stride, rows, values, offset, count, step, out, out_stride):
    """Add `count` values [count, lanes], weighted, to all rows' outputs."""
    row = 0
    while row < rows:
        left = rows - row
        w, to = weights + row * stride, out + row * out_stride
        if left >= ROWS_A:
            _value_a(w, stride, values, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_A
        elif left >= ROWS_B:
            _value_b(w, stride, values, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_B
        elif left >= ROWS_C:
            _value_c(w, stride, values, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_C
        elif left >= ROWS_D:
            _value_d(w, stride, values, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_D
        else:
            _value_one(w, stride, values, (offset,), count, step, to, out_stride, 0, ())
            row += 1


@njit
def gather_queries(qkv, first, count, head, group, dim, factor, queries):
    """queries [count * group, dim] = the tile's rows of one KV head's group, times the softmax factor."""
    for token in range(count):
        for member in range(group):
            start = (head * group + member) * dim
            for i in range(dim):
                queries[token * group + member, i] = qkv[first + token, start + i] * factor


@njit
def attend(queries, rows, group, position, table, layer, head, keys, values, scores, sums):
    """Attention of one item; the queries' own keys and values are in the pool already.

    queries: [rows, dim], scaled; row r belongs to position + r // group. table: [blocks] of the sequence.
    scores: [rows, most keys]; sums: [rows, padded dim], the result. keys, values: the pool, see kernels.pool.
    """
    dim, parts = keys.shape[4], keys.shape[3]
    context = position + (rows + group - 1) // group
    blocks = (context + LANES - 1) // LANES
    row_bytes = scores.strides[0]
    for block in range(blocks):
        slot, part = table[block // parts], block % parts
        offset = slot * keys.strides[0] + layer * keys.strides[1] + head * keys.strides[2] + part * keys.strides[3]
        to = address(scores) + block * VECTOR_BYTES
        _score_rows(address(queries), queries.strides[0], rows, keys, offset, dim, keys.strides[4], to, row_bytes)
    for row in range(rows):
        valid = position + row // group + 1
        total = exponentiate_row(address(scores) + row * row_bytes, valid, blocks * LANES)
        scores[row, blocks * LANES] = total  # the column after the last
        for i in range(sums.shape[1]):
            sums[row, i] = np.float32(0.0)
    for block in range(blocks):
        slot, part = table[block // parts], block % parts
        offset = (
            slot * values.strides[0] + layer * values.strides[1] + head * values.strides[2] + part * values.strides[3]
        )
        count = min(LANES, context - block * LANES)
        weights = address(scores) + block * VECTOR_BYTES
        for lane in range(0, sums.shape[1], VALUE_LANES):
            _value_rows(
                weights, row_bytes, rows, values, offset + lane * values.itemsize, count, values.strides[4],
                address(sums) + lane * 4, sums.strides[0],
            )  # fmt: skip
    for row in range(rows):
        total = scores[row, blocks * LANES]
        for i in range(sums.shape[1]):
            sums[row, i] /= total
