"""Paged attention of any shape on the CPU: windows, soft-caps, sinks, and values of another size than keys.

A row's scores and sums run over its own keys in order, so its bits depend on nothing but the row and its cache.
"""

import math

import numpy as np
import numpy.typing as npt
from numba import njit, prange

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

REORDER = {"reassoc", "contract", "nsz"}
"""What the compiler may do to sums so that it can use vectors; the order is the same for every row."""


@njit(fastmath=REORDER)
def _score(query, key):
    total = np.float32(0.0)
    for i in range(query.shape[0]):
        total += query[i] * key[i]
    return total


@njit(fastmath=REORDER)
def _add_value(out, weight, value):
    for i in range(out.shape[0]):
        out[i] += weight * value[i]


@njit(nogil=True)
def _attend_one(query, keys, values, table, head, first, last, sink, scale, softcap, scores, out):
    """One query of one head over positions [first, last)."""
    size = keys.shape[1]
    top = sink
    for at in range(first, last):
        score = _score(query, keys[table[at // size], at % size, head]) * scale
        if softcap > 0:
            score = np.float32(math.tanh(score / softcap)) * softcap
        scores[at - first] = score
        top = max(top, score)
    total = np.float32(math.exp(sink - top))  # 0 without a sink
    out[:] = np.float32(0.0)
    for at in range(first, last):
        weight = np.float32(math.exp(scores[at - first] - top))
        total += weight
        _add_value(out, weight, values[table[at // size], at % size, head])
    for i in range(out.shape[0]):
        out[i] /= total


@njit(parallel=True, nogil=True, cache=True)
def _attend(query, keys, values, sequence_of, positions, tables, sinks, scale, window, softcap, out):
    heads = query.shape[1]
    group = heads // keys.shape[2]
    for item in prange(query.shape[0] * heads):
        row, head = item // heads, item % heads
        last = positions[row] + 1
        first = max(0, last - window) if window > 0 else 0
        scores = np.empty(last - first, np.float32)
        _attend_one(
            query[row, head], keys, values, tables[sequence_of[row]], head // group, first, last, sinks[head],
            scale, softcap, scores, out[row, head],
        )  # fmt: skip


def attend_rows(
    query: Float32, keys: Float32, values: Float32, sequence_of: Int64, positions: Int64, tables: Int32,
    sinks: Float32, *, scale: float, window: int, softcap: float,
) -> Float32:  # fmt: skip
    """Return the attention of query [tokens, heads, key dim] over the cache, [tokens, heads, value dim].

    keys, values: [blocks, block size, KV heads, dim]. sequence_of, positions: [tokens]. tables: [sequences, blocks].
    sinks: [heads], -inf for none. window: 0 sees all. softcap: 0 is off.
    """
    out = np.empty((*query.shape[:2], values.shape[3]), np.float32)
    _attend(query, keys, values, sequence_of, positions, tables, sinks, np.float32(scale), window,
            np.float32(softcap), out)
    return out
