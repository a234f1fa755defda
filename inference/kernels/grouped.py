"""Packed linear layers of many groups at once: each group of neighbouring rows has weights of its own.

Used for experts (a group is an expert's tokens) and for latent attention (a group is a head).
"""

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from inference.kernels.linear import PANEL, Packed, linear_panels
from inference.kernels.packed import ROW_CHUNK, operands
from inference.kernels.team import share
from inference.kernels.vector import address

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


@njit
def _group_panels(x, x_scale, start, end, packed, group, first, last, zeros, out):
    """Panels [first, last) of one group's outputs for its rows [start, end)."""
    at = first * PANEL * 4
    for row in range(start, end, ROW_CHUNK):
        linear_panels(
            address(x) + row * x.strides[0], x.strides[0], address(x_scale) + row * 4, min(ROW_CHUNK, end - row),
            packed, group, first, last, address(out) + row * out.strides[0] + at, out.strides[0], address(zeros), 0,
        )  # fmt: skip


@njit(parallel=True, nogil=True, cache=True)
def _multiply_groups(inputs, input_scale, starts, active, weights, scale, bias, zeros, out, members):
    panels = weights.shape[1]
    for member in prange(members):
        packed = Packed(weights, scale, bias)
        item, last = share(active.shape[0] * panels, np.int64(member), members)
        while item < last:
            group, panel = active[item // panels], item % panels
            count = min(panels - panel, last - item)
            _group_panels(
                inputs, input_scale, starts[group], starts[group + 1], packed, group, panel, panel + count, zeros, out
            )
            item += count


def multiply_groups(x: Float32, starts: Int64, packed: Packed) -> Float32:
    """Return each group's rows times that group's weights, with its bias, [rows, whole panels].

    x: [rows, k], contiguous, sorted by group. starts: [groups + 1], where each group's rows begin; rows after the last
    are left undefined. packed: its layers are the groups. A row's bits depend on nothing but the row and its group.
    """
    width = packed.weights.shape[1] * PANEL
    out = np.empty((len(x), width), np.float32)
    active = np.flatnonzero(starts[1:] > starts[:-1])
    if len(active):
        zeros = np.zeros(width, np.float32)
        _multiply_groups(*operands(x, packed), starts, active, *packed, zeros, out, get_num_threads())
    return out


@njit(parallel=True, nogil=True, cache=True)
def _combine(rows, places, weights, out):
    for token in prange(places.shape[0]):
        for i in range(out.shape[1]):
            out[token, i] = np.float32(0.0)
        for rank in range(places.shape[1]):
            row, weight = rows[places[token, rank]], weights[token, rank]
            for i in range(out.shape[1]):
                out[token, i] += weight * row[i]


def combine_rows(rows: Float32, places: Int64, weights: Float32, size: int) -> Float32:
    """Return the weighted sum of each token's rows, in the order of its places, [tokens, size].

    rows: [pairs, size or wider]. places: [tokens, k], a row for each. weights: [tokens, k].
    """
    out = np.empty((len(places), size), np.float32)
    _combine(rows, places, weights, out)
    return out
