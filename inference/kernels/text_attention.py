"""Attention of one text and head over all of its tokens, from queries, keys and values as a projection left them.

Scores of a row are computed whole, then exponentiated, then summed with the values in order of position, so a row's
bits do not depend on the texts beside it.
"""

import numpy as np
from numba import njit

from inference.kernels.normalise import scale_row
from inference.kernels.tile import ROWS_A, ROWS_B, ROWS_C, ROWS_D, VECTORS, make_tile
from inference.kernels.vector import LANES, address, exponentiate_row

KEY_LANES = VECTORS * LANES
"""Keys side by side in a packed part, and the size that heads must be a multiple of."""
QUERY_ROWS = 48
"""Queries that share a pass over keys and values, a multiple of every tile's rows."""

_tile_a = make_tile(ROWS_A, VECTORS, 1, "plain")
_tile_b = make_tile(ROWS_B, VECTORS, 1, "plain")
_tile_c = make_tile(ROWS_C, VECTORS, 1, "plain")
_tile_d = make_tile(ROWS_D, VECTORS, 1, "plain")
_tile_one = make_tile(1, VECTORS, 1, "plain")


@njit
def _rows(x, stride, rows, panel, offset, count, step, out, out_stride):
    """Products of all rows with one panel [count, KEY_LANES] at a byte offset of an array."""
    row = 0
    while row < rows:
        left = rows - row
        x_row, to = x + row * stride, out + row * out_stride
        if left >= ROWS_A:
            _tile_a(x_row, stride, panel, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_A
        elif left >= ROWS_B:
            _tile_b(x_row, stride, panel, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_B
        elif left >= ROWS_C:
            _tile_c(x_row, stride, panel, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_C
        elif left >= ROWS_D:
            _tile_d(x_row, stride, panel, (offset,), count, step, to, out_stride, 0, ())
            row += ROWS_D
        else:
            _tile_one(x_row, stride, panel, (offset,), count, step, to, out_stride, 0, ())
            row += 1


@njit
def pack_keys(qkv, first, count, column, dim, keys):
    """keys [parts, dim, KEY_LANES] = the text's keys from a column of qkv on, zeros behind the last."""
    for part in range((count + KEY_LANES - 1) // KEY_LANES):
        for lane in range(KEY_LANES):
            token = part * KEY_LANES + lane
            if token < count:
                for i in range(dim):
                    keys[part, i, lane] = qkv[first + token, column + i]
            else:
                for i in range(dim):
                    keys[part, i, lane] = np.float32(0.0)


@njit
def attend_text(qkv, first, count, head, dim, width, keys, scores, out):
    """out[first : first + count, head * dim …] = softmax(queries @ keys) @ values of one head of one text.

    qkv: [tokens, 3 * width] with scaled queries. keys: scratch [parts, dim, KEY_LANES]. scores: scratch
    [QUERY_ROWS, most tokens rounded up to KEY_LANES].
    """
    pack_keys(qkv, first, count, width + head * dim, dim, keys)
    parts = (count + KEY_LANES - 1) // KEY_LANES
    stride, row_bytes, key_step = qkv.strides[0], scores.strides[0], keys.strides[1]
    values = first * stride + (2 * width + head * dim) * 4
    for start in range(0, count, QUERY_ROWS):
        rows = min(QUERY_ROWS, count - start)
        queries = address(qkv) + (first + start) * stride + head * dim * 4
        to = address(out) + (first + start) * out.strides[0] + head * dim * 4
        for part in range(parts):
            at = address(scores) + part * KEY_LANES * 4
            _rows(queries, stride, rows, keys, part * keys.strides[0], dim, key_step, at, row_bytes)
        for row in range(rows):
            at = address(scores) + row * row_bytes
            total = exponentiate_row(at, count, (count + LANES - 1) // LANES * LANES)
            scale_row(at, (count + LANES - 1) // LANES * LANES, np.float32(1.0) / total)
        for lane in range(0, dim, KEY_LANES):
            _rows(
                address(scores), row_bytes, rows, qkv, values + lane * 4, count, stride,
                to + lane * 4, out.strides[0],
            )  # fmt: skip
