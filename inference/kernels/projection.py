"""One linear layer over a block of rows in either recipe: float32, or 8-bit products in groups with float32 scales."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import overload

from inference.kernels.dot8 import GROUP, QUAD, ROWS8, make_tile8, quantise_group
from inference.kernels.linear import PANEL, Packed, linear_panels
from inference.kernels.tile import VECTORS
from inference.kernels.vector import LANES, VECTOR_BYTES, address

Array = npt.NDArray[np.float32]


class Packed8(NamedTuple):
    """Packed 8-bit weights of one linear layer of every layer; inputs are a multiple of 16.

    codes: [layers, panels, inputs / 4, 32, 4] uint8, 128 too large. scales: [layers, panels, inputs / 16, 32] float32.
    factors: [layers, inputs], what activations are multiplied by before they become codes. bias: [layers, panels * 32].
    """

    codes: npt.NDArray[np.uint8]
    scales: Array
    factors: Array
    bias: Array


Projection = Packed | Packed8

_tile_rows = make_tile8(ROWS8)
_tile_two = make_tile8(2)
_tile_one = make_tile8(1)


def project(x: Any, x_stride: Any, rows: Any, packed: Any, layer: Any, out: Any, out_stride: Any, residual: Any,
            residual_stride: Any, codes: Any, scales: Any, firsts: Any) -> None:
    """out = x @ weights + bias + residual for a block of rows: compiled code only, by the type of packed.

    x, out, residual: addresses; strides in bytes. codes, scales, firsts: scratch for 8-bit rows.
    """
    raise NotImplementedError("only compiled code calls this")


@overload(project)
def _project(x, x_stride, rows, packed, layer, out, out_stride, residual, residual_stride, codes, scales, firsts):
    return _project_float if packed.instance_class is Packed else _project_codes


def _project_float(x, x_stride, rows, packed, layer, out, out_stride, residual, residual_stride, codes, scales,
                   firsts):
    panels = packed.weights.shape[1]
    linear_panels(x, x_stride, 0, rows, packed, layer, 0, panels, out, out_stride, residual,
                  residual_stride)


def _project_codes(x, x_stride, rows, packed, layer, out, out_stride, residual, residual_stride, codes, scales,
                   firsts):
    groups = packed.scales.shape[2]
    factors = address(packed.factors) + layer * packed.factors.strides[0]
    for row in range(rows):
        at = x + row * x_stride
        code = address(codes) + row * codes.strides[0]
        scale, first = address(scales) + row * scales.strides[0], address(firsts) + row * firsts.strides[0]
        for group in range(groups):
            quantise_group(at + group * GROUP * 4, factors + group * GROUP * 4, code + group * GROUP,
                           scale + group * 4, first + group * 4)
    _panels8(rows, packed, layer, out, out_stride, residual, residual_stride, codes, scales, firsts)


@njit
def _panels8(rows, packed, layer, out, out_stride, residual, residual_stride, codes, scales, firsts):
    groups = packed.scales.shape[2]
    step, scale_step = packed.codes.strides[2], packed.scales.strides[2]
    for panel in range(packed.codes.shape[1]):
        weights = address(packed.codes) + layer * packed.codes.strides[0] + panel * packed.codes.strides[1]
        factors = address(packed.scales) + layer * packed.scales.strides[0] + panel * packed.scales.strides[1]
        bias = address(packed.bias) + layer * packed.bias.strides[0] + panel * PANEL * 4
        for half in range(0, PANEL // LANES, VECTORS):
            lane = half * VECTOR_BYTES
            row = 0
            while row < rows:
                code = address(codes) + row * codes.strides[0]
                scale, first = address(scales) + row * scales.strides[0], address(firsts) + row * firsts.strides[0]
                to = out + row * out_stride + panel * PANEL * 4 + lane
                beside = residual + row * residual_stride + panel * PANEL * 4 + lane
                if rows - row >= ROWS8:
                    _tile_rows(code, codes.strides[0], scale, first, scales.strides[0], groups, weights + lane,
                               factors + lane, step, scale_step, bias + lane, beside, residual_stride, to, out_stride)
                    row += ROWS8
                elif rows - row >= 2:
                    _tile_two(code, codes.strides[0], scale, first, scales.strides[0], groups, weights + lane,
                              factors + lane, step, scale_step, bias + lane, beside, residual_stride, to, out_stride)
                    row += 2
                else:
                    _tile_one(code, codes.strides[0], scale, first, scales.strides[0], groups, weights + lane,
                              factors + lane, step, scale_step, bias + lane, beside, residual_stride, to, out_stride)
                    row += 1


def pack8(weights: list[Array], biases: list[Array], factors: list[Array]) -> Packed8:
    """Return packed weights of each layer [outputs, inputs], symmetric in groups of 16 inputs of an output.

    factors: [inputs] of each layer; activations are multiplied by them, and weights divided. Outputs and inputs are
    multiples of 32. A group's scale is its largest magnitude / 127.
    """
    layers, (outputs, inputs) = len(weights), weights[0].shape
    panels, groups = outputs // PANEL, inputs // GROUP
    packed = Packed8(
        codes=np.empty((layers, panels, inputs // QUAD, PANEL, QUAD), np.uint8),
        scales=np.empty((layers, panels, groups, PANEL), np.float32),
        factors=np.stack(factors).astype(np.float32), bias=np.stack(biases).astype(np.float32),
    )
    for layer, values in enumerate(weights):
        grouped = (values / factors[layer]).astype(np.float32).reshape(outputs, groups, GROUP)
        scale = np.abs(grouped).max(axis=2) / np.float32(127)
        codes = np.rint(grouped / np.where(scale > 0, scale, 1)[..., None]) + 128
        byte = codes.astype(np.uint8).reshape(panels, PANEL, inputs // QUAD, QUAD)
        packed.codes[layer] = byte.transpose(0, 2, 1, 3)
        packed.scales[layer] = scale.reshape(panels, PANEL, groups).transpose(0, 2, 1)
    return packed
