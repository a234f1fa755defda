"""The one inner loop of every matrix product: rows times panels of weights, generated as LLVM IR.

A panel holds 16 or more output lanes side by side for each step of k. With float weights, [k, lanes], each output is
one chain of fused multiply-adds over k from 0 upwards; with int8 weights, [k / 2, lanes, 2], an exact sum of integers
(integer_products.py). So its bits do not depend on how many rows or panels the tile has. Only the tile's shape changes
with the work: enough independent chains to keep the multipliers busy, few enough for the registers.
"""

from typing import Any, Literal

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from inference.kernels.integer_products import integer_products
from inference.kernels.vector import (
    FLOAT,
    FLOAT_BYTES,
    HAS_AVX512,
    INT64,
    VECTOR,
    VECTOR_BYTES,
    Builder,
    Value,
    address_of,
    broadcast,
    constant,
    fma,
    int64,
    load,
    pointer,
    store,
)

Ending = Literal["plain", "affine", "accumulate"]

ROWS_A, ROWS_B, ROWS_C, ROWS_D = (12, 8, 4, 2) if HAS_AVX512 else (6, 4, 3, 2)
"""Rows of the tiles, largest first; single rows come after them."""
VECTORS = 2 if HAS_AVX512 else 1
"""Vectors of 16 lanes in a tile's panel."""


def _float_products(b: Builder, panels: list[Value], rows: int, vectors: int, args: Any) -> Any:
    """Emit the loop over k; args: x, x_stride, k, k_stride, first(row, panel, vector). Return the sums' variables."""
    x, x_stride, k, k_stride, first = args
    shape = [(r, p, v) for r in range(rows) for p in range(len(panels)) for v in range(vectors)]
    sums = {at: cgutils.alloca_once_value(b, first(*at)) for at in shape}
    row_starts = [b.add(x, b.mul(x_stride, int64(r))) for r in range(rows)]
    with cgutils.for_range(b, k, intp=INT64) as loop:
        offset = b.mul(loop.index, k_stride)
        weights = {}
        for p, panel in enumerate(panels):
            for v in range(vectors):
                weights[p, v] = load(b, b.add(b.add(panel, offset), int64(v * VECTOR_BYTES)))
        for r in range(rows):
            place = b.add(row_starts[r], b.mul(loop.index, int64(FLOAT_BYTES)))
            value = broadcast(b, b.load(pointer(b, place, FLOAT), align=FLOAT_BYTES))
            for (p, v), weight in weights.items():
                b.store(fma(b, value, weight, b.load(sums[r, p, v])), sums[r, p, v])
    return sums


def make_tile(rows: int, vectors: int, panels: int, ending: Ending) -> Any:
    """Return an intrinsic: tile(x, x_stride, weights, panel_offsets, k, k_stride, out, out_stride, panel_step, extra).

    x, out: addresses of the first row; *_stride: bytes between rows (of x and out) or between k (weights).
    weights: array of float32, and x of float32 with k steps; or of int8, and x of int16 with k / 2 steps of pairs.
    panel_offsets: tuple of `panels` byte offsets into it.
    panel_step: bytes between the outputs of two panels, also in scale, bias and residual.
    ending `plain`: out = sum; `accumulate`: the sum starts from out;
    `affine`: out = sum * scale + bias + residual, extra = (scale, bias, residual, residual_stride, x_scale), addresses;
    with int8 weights, the sum is multiplied by the row's x_scale too.
    """

    @intrinsic
    def tile(
        _context: Any, _x: Any, _x_stride: Any, weights: Any, offsets: Any, _k: Any, _k_stride: Any, _out: Any,
        _out_stride: Any, _panel_step: Any, extra: Any,
    ) -> Any:  # fmt: skip
        whole = types.int64

        def codegen(context: Any, b: Builder, signature: Any, args: Any) -> Value:
            x, x_stride, array, offset_tuple, k, k_stride, out, out_stride, step, extra_tuple = args
            base = address_of(context, b, signature.args[2], array)
            starts = [b.add(base, offset) for offset in cgutils.unpack_tuple(b, offset_tuple)]
            more = cgutils.unpack_tuple(b, extra_tuple) if ending == "affine" else []

            def place(start: Value, stride: Value, r: int, p: int, v: int) -> Value:
                at = b.add(start, b.add(b.mul(stride, int64(r)), b.mul(step, int64(p))))
                return b.add(at, int64(v * VECTOR_BYTES))

            def first(r: int, p: int, v: int) -> Value:
                return load(b, place(out, out_stride, r, p, v)) if ending == "accumulate" else constant(0.0)

            whole_numbers = weights.dtype == types.int8
            if whole_numbers:
                sums = integer_products(b, starts, rows, vectors, (x, x_stride, k, k_stride))
            else:
                sums = _float_products(b, starts, rows, vectors, (x, x_stride, k, k_stride, first))
            for (r, p, v), variable in sums.items():
                value = b.load(variable)
                if ending == "affine":
                    scale, bias, residual, residual_stride, x_scale = more
                    factor = load(b, place(scale, int64(0), r, p, v))
                    if whole_numbers:
                        value = b.sitofp(value, VECTOR)
                        row_scale = b.load(pointer(b, b.add(x_scale, int64(r * FLOAT_BYTES)), FLOAT), align=FLOAT_BYTES)
                        factor = b.fmul(factor, broadcast(b, row_scale))
                    value = b.fadd(b.fmul(value, factor), load(b, place(bias, int64(0), r, p, v)))
                    value = b.fadd(value, load(b, place(residual, residual_stride, r, p, v)))
                store(b, value, place(out, out_stride, r, p, v))
            return context.get_dummy_value()

        signature = types.void(
            whole, whole, weights, types.UniTuple(whole, panels), whole, whole, whole, whole, whole, extra
        )
        return signature, codegen

    return tile
