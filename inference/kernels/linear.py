"""Linear layers over packed weights: activations [rows, k] times panels of 32 outputs.

float32 weights are multiplied with float32 activations. int8 weights are multiplied with activations that are first
rounded to some 14 bits with a scale a row (narrow_row), so that sums are exact integers.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import overload

from inference.kernels.integer_products import MOST_DEPTH, PAIR_BYTES, activation_limit
from inference.kernels.tile import ROWS_A, ROWS_B, ROWS_C, ROWS_D, VECTORS, make_tile
from inference.kernels.vector import FLOAT_BYTES, LANES, VECTOR_BYTES, address, largest_magnitude, round_to_int16

PANEL = 32
"""Output lanes of a panel."""
_PANEL_BYTES = PANEL * 4

Array = npt.NDArray[np.float32]


class Packed(NamedTuple):
    """Packed weights of one linear layer of every decoder layer. Outputs are padded with zeros to whole panels.

    weights: [layers, panels, k, 32] float32, or [layers, panels, k / 2, 32, 2] int8, pairs of k side by side.
    scale, bias: [layers, panels * 32] float32. out = (x @ weights) * scale + bias.
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


def _is_whole(packed: Any) -> bool:
    return bool(packed.types[0].dtype == types.int8)


def narrow_row(packed, x, k, narrow, narrow_scale, row):
    """Round x[row, :k] to what int8 weights are multiplied with; float32 weights need nothing.

    narrow[row, :k] becomes int16 of at most activation_limit(k), narrow_scale[row] what one step stands for. A row with
    a value that is not finite has scale NaN. narrow has whole pairs in a row.
    """


@overload(narrow_row, inline="never")
def _narrow_row(packed, x, k, narrow, narrow_scale, row):
    if not _is_whole(packed):
        return lambda packed, x, k, narrow, narrow_scale, row: None

    def implementation(packed, x, k, narrow, narrow_scale, row):
        count = k // LANES * LANES
        start = address(x) + row * x.strides[0]
        top = largest_magnitude(start, count)
        for i in range(count, k):
            size = abs(x[row, i])
            top = size if size > top or size != size else top
        limit = np.float32(limit_of(k))
        usable = top > 0 and top < np.float32(np.inf)
        narrow_scale[row] = top / limit if top < np.float32(np.inf) else np.float32(np.nan)
        factor = limit / top if usable else np.float32(0.0)
        round_to_int16(start, count, factor, address(narrow) + row * narrow.strides[0])
        for i in range(count, k):
            narrow[row, i] = np.int16(np.rint(x[row, i] * factor)) if usable else np.int16(0)

    return implementation


def operand(packed, x, narrow):
    """Return the rows that packed weights are multiplied with: x, or narrow for int8 weights."""


@overload(operand)
def _operand(packed, x, narrow):
    if _is_whole(packed):
        return lambda packed, x, narrow: narrow
    return lambda packed, x, narrow: x


def _most_steps(packed):
    """Return the most steps of k in one chain of sums."""


@overload(_most_steps)
def _most_steps_implementation(packed):
    most = MOST_DEPTH // 2 if _is_whole(packed) else 2**62
    return lambda packed: most


def _step_bytes(packed):
    """Return the bytes of a row's activations in one step of k."""


@overload(_step_bytes)
def _step_bytes_implementation(packed):
    size = PAIR_BYTES if _is_whole(packed) else FLOAT_BYTES
    return lambda packed: size


def weight_at(packed, output, i):
    """Return weight i of an output of layer 0, without its scale."""


@overload(weight_at)
def _weight_at(packed, output, i):
    if _is_whole(packed):
        return lambda packed, output, i: packed.weights[0, output // PANEL, i // 2, output % PANEL, i % 2]
    return lambda packed, output, i: packed.weights[0, output // PANEL, i, output % PANEL]


limit_of = njit(activation_limit)
_ZEROS = np.zeros(4 * PANEL, np.float32)


@njit
def _panel_rows(
    x, x_stride, rows, weights, offset, k, k_stride, out, out_stride, scale, bias, residual, res_stride, x_scale
):  # fmt: skip
    """All rows of one panel's VECTORS * 16 lanes; every argument but weights is an address, a count or bytes."""
    row = 0
    while row < rows:
        left = rows - row
        x_row, out_row = x + row * x_stride, out + row * out_stride
        extra = (scale, bias, residual + row * res_stride, res_stride, x_scale + row * FLOAT_BYTES)
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
def linear_panels(x, x_stride, x_scale, rows, packed, layer, first, last, out, out_stride, residual, residual_stride):
    """Compute panels [first, last) of a layer's outputs for all rows.

    x: address of the first row of what operand() returns; x_scale: address of its narrow_scale (int8 weights only).
    out, residual: addresses of the first row, at panel `first`; strides in bytes.
    residual: added to the result; it may be out itself. A row of zeros with stride 0 adds nothing.
    """
    steps, most = packed.weights.shape[2], _most_steps(packed)
    column = layer * packed.scale.strides[0]
    scale, bias = address(packed.scale) + column, address(packed.bias) + column
    _steps(
        x, x_stride, x_scale, rows, packed, layer, first, last, 0, min(steps, most), out, out_stride, residual,
        residual_stride, scale, bias, 1,
    )  # fmt: skip
    for step in range(most, steps, most):
        _steps(
            x + step * _step_bytes(packed), x_stride, x_scale, rows, packed, layer, first, last, step,
            min(most, steps - step), out, out_stride, out, out_stride, scale, address(_ZEROS), 0,
        )  # fmt: skip


@njit
def _steps(
    x, x_stride, x_scale, rows, packed, layer, first, last, step, steps, out, out_stride, residual, residual_stride,
    scale, bias, bias_moves,
):  # fmt: skip
    """Compute linear_panels over steps [step, step + steps) of k."""
    weights = packed.weights
    panel_stride, k_stride = weights.strides[1], weights.strides[2]
    half_bytes = k_stride // (PANEL // LANES)
    base = layer * weights.strides[0] + step * k_stride
    for half in range(0, PANEL // LANES, VECTORS):
        panel = first
        lane = half * VECTOR_BYTES
        while panel < last:
            offset = base + panel * panel_stride + half * half_bytes
            at = lane + panel * _PANEL_BYTES
            to = lane + (panel - first) * _PANEL_BYTES
            extra = (scale + at, bias + at * bias_moves, residual + to, residual_stride, x_scale)
            if rows == 1 and panel + 4 <= last:
                offsets = (offset, offset + panel_stride, offset + 2 * panel_stride, offset + 3 * panel_stride)
                _tile_one(x, x_stride, weights, offsets, steps, k_stride, out + to, out_stride, _PANEL_BYTES, extra)
                panel += 4
            elif rows == ROWS_D and panel + 2 <= last:
                offsets_2 = (offset, offset + panel_stride)
                _tile_d(x, x_stride, weights, offsets_2, steps, k_stride, out + to, out_stride, _PANEL_BYTES, extra)
                panel += 2
            else:
                _panel_rows(
                    x, x_stride, rows, weights, offset, steps, k_stride, out + to, out_stride,
                    scale + at, bias + at * bias_moves, residual + to, residual_stride, x_scale,
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
    """Write values [outputs, k] into int8 weights [panels, k / 2, 32, 2], symmetric per output.

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
            weights[panel, i // 2, lane, i % 2] = np.int8(np.rint(values[row, i] * factor)) if finite else np.int8(0)
