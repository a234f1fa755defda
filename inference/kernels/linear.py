"""Linear layers over packed weights: activations [rows, k] in float32 times panels [panels, k, 32]."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from inference.kernels.tile import ROWS_A, ROWS_B, ROWS_C, ROWS_D, VECTORS, make_tile
from inference.kernels.vector import LANES, VECTOR_BYTES, address

PANEL = 32
"""Output lanes of a panel."""
_PANEL_BYTES = PANEL * 4

Array = npt.NDArray[np.float32]


class Packed(NamedTuple):
    """Packed weights of one linear layer of every decoder layer. Outputs are padded with zeros to whole panels.

    weights: [layers, panels, k, 32] float32 or int8. scale, bias: [layers, panels * 32] float32.
    out = (x @ weights) * scale + bias.
    """

    weights: npt.NDArray[np.generic]
    scale: Array
    bias: Array


_tile_a = make_tile(ROWS_A, VECTORS, 1, "affine")
_tile_b = make_tile(ROWS_B, VECTORS, 1, "affine")
_tile_c = make_tile(ROWS_C, VECTORS, 1, "affine")
_tile_d = make_tile(ROWS_D, VECTORS, 2, "affine")
_tile_d_last = make_tile(ROWS_D, VECTORS, 1, "affine")
_tile_one = make_tile(1, VECTORS, 4, "affine")
_tile_one_last = make_tile(1, VECTORS, 1, "affine")


@njit
def _panel_rows(x, x_stride, rows, weights, offset, k, k_stride, out, out_stride, scale, bias, residual, res_stride):
    """All rows of one panel's VECTORS * 16 lanes; every argument but weights is an address, a count or bytes."""
    row = 0
    while row < rows:
        left = rows - row
        x_row, out_row = x + row * x_stride, out + row * out_stride
        extra = (scale, bias, residual + row * res_stride, res_stride)
        if left >= ROWS_A:
            _tile_a(x_row, x_stride, weights, (offset,), k, k_stride, out_row, out_stride, 0, extra)
            row += ROWS_A
        elif left >= ROWS_B:
            _tile_b(x_row, x_stride, weights, (offset,), k, k_stride, out_row, out_stride, 0, extra)
            row += ROWS_B
        elif left >= ROWS_C:
            _tile_c(x_row, x_stride, weights, (offset,), k, k_stride, out_row, out_stride, 0, extra)
            row += ROWS_C
        elif left >= ROWS_D:
            _tile_d_last(x_row, x_stride, weights, (offset,), k, k_stride, out_row, out_stride, 0, extra)
            row += ROWS_D
        else:
            _tile_one_last(x_row, x_stride, weights, (offset,), k, k_stride, out_row, out_stride, 0, extra)
            row += 1


@njit
def linear_panels(x, x_stride, rows, k, packed, layer, first, last, out, out_stride, residual, residual_stride):
    """Compute panels [first, last) of a layer's outputs for all rows.

    x, out, residual: addresses of the first row (of out and residual: at panel `first`); strides in bytes.
    residual: added to the result; it may be out itself. A row of zeros with stride 0 adds nothing.
    """
    weights = packed.weights
    panel_stride, k_stride = weights.strides[1], weights.strides[2]
    size = k_stride // PANEL
    base = layer * weights.strides[0]
    column = layer * packed.scale.strides[0]
    scale, bias = address(packed.scale) + column, address(packed.bias) + column
    for half in range(0, PANEL // LANES, VECTORS):
        panel = first
        lane = half * VECTOR_BYTES
        while panel < last:
            offset = base + panel * panel_stride + half * LANES * size
            at = lane + panel * _PANEL_BYTES
            to = lane + (panel - first) * _PANEL_BYTES
            extra = (scale + at, bias + at, residual + to, residual_stride)
            if rows == 1 and panel + 4 <= last:
                offsets = (offset, offset + panel_stride, offset + 2 * panel_stride, offset + 3 * panel_stride)
                _tile_one(x, x_stride, weights, offsets, k, k_stride, out + to, out_stride, _PANEL_BYTES, extra)
                panel += 4
            elif rows == ROWS_D and panel + 2 <= last:
                offsets_2 = (offset, offset + panel_stride)
                _tile_d(x, x_stride, weights, offsets_2, k, k_stride, out + to, out_stride, _PANEL_BYTES, extra)
                panel += 2
            else:
                _panel_rows(
                    x, x_stride, rows, weights, offset, k, k_stride, out + to, out_stride,
                    scale + at, bias + at, residual + to, residual_stride,
                )  # fmt: skip
                panel += 1


@njit
def _place(row, first_output, step):
    """Return (panel, lane) of a row, when rows go to output `first_output` on, or to every second panel (step 2)."""
    if step == 1:
        return (first_output + row) // PANEL, (first_output + row) % PANEL
    return first_output // PANEL + row // PANEL * step, row % PANEL


@njit(nogil=True, cache=True)
def copy_rows(values, weights, scale, first_output, step):
    """Write values [outputs, k] into float32 weights [panels, k, 32] with scale 1."""
    for row in range(values.shape[0]):
        panel, lane = _place(row, first_output, step)
        scale[panel * PANEL + lane] = np.float32(1.0)
        for i in range(values.shape[1]):
            weights[panel, i, lane] = values[row, i]


@njit(nogil=True, cache=True)
def quantise_rows(values, weights, scale, first_output, step):
    """Write values [outputs, k] into int8 weights [panels, k, 32], symmetric per output.

    scale = largest magnitude / 127, weights rounded half to even. A row of zeros has scale 0; a row with a value that
    is not finite has scale NaN.
    """
    for row in range(values.shape[0]):
        panel, lane = _place(row, first_output, step)
        top = np.float32(0.0)
        finite = True
        for i in range(values.shape[1]):
            size = abs(values[row, i])
            finite &= size < np.float32(np.inf)
            top = max(top, size)
        scale[panel * PANEL + lane] = top / np.float32(127.0) if finite else np.float32(np.nan)
        factor = np.float32(127.0) / top if finite and top > 0 else np.float32(0.0)
        for i in range(values.shape[1]):
            weights[panel, i, lane] = np.int8(np.rint(values[row, i] * factor)) if finite else np.int8(0)
