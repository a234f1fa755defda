"""Products of 8-bit activations and 8-bit weights in exact 32-bit sums, a group of 16 inputs at a time, as LLVM IR.

On processors with VNNI one instruction multiplies and adds 64 pairs. The sums are whole numbers, so every processor
gives the same; how groups are scaled and added in float32 is written out, so a row's bits follow from the source.
"""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from inference.kernels.tile import VECTORS
from inference.kernels.vector import (
    FLOAT,
    FLOAT_BYTES,
    INT32,
    INT64,
    LANES,
    VECTOR,
    VECTOR_BYTES,
    VECTOR_INT32,
    Builder,
    Value,
    broadcast,
    constant,
    constant_int,
    fma,
    int64,
    load,
    pointer,
    store,
)

GROUP = LANES
"""Inputs that share one scale, in weights and in activations. Groups of 32 are a fifth faster; on the demo model they
take the least cosine of 72 texts from 0.9996 to 0.9990."""
QUAD = 4
"""Inputs whose products one 32-bit lane adds up at once."""
ROWS8 = 6 if VECTORS == 2 else 3
"""Rows of the largest tile."""

HAS_VNNI = bool(binding.get_host_cpu_features().get("avx512vnni", False)) and VECTORS == 2
_BYTES = ir.VectorType(ir.IntType(8), LANES * QUAD)


def _splat(b: Builder, scalar: Value) -> Value:
    first = b.insert_element(ir.Constant(VECTOR_INT32, ir.Undefined), scalar, ir.Constant(INT32, 0))
    return b.shuffle_vector(first, ir.Constant(VECTOR_INT32, ir.Undefined), ir.Constant(VECTOR_INT32, [0] * LANES))


def dot_quads(b: Builder, total: Value, weights: Value, values: Value) -> Value:
    """Return total + the four products of unsigned bytes (weights) and signed bytes (values) in each 32-bit lane."""
    if HAS_VNNI:
        kind = ir.FunctionType(VECTOR_INT32, [VECTOR_INT32, _BYTES, _BYTES])
        function = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return b.call(function, [total, b.bitcast(weights, _BYTES), b.bitcast(values, _BYTES)])
    for place in range(QUAD):
        weight = b.and_(b.lshr(weights, constant_int(8 * place)), constant_int(255))
        value = b.ashr(b.shl(values, constant_int(24 - 8 * place)), constant_int(24))
        total = b.add(total, b.mul(weight, value))
    return total


def make_tile8(rows: int) -> Any:
    """Return an intrinsic that computes `rows` rows times VECTORS * 16 outputs of one panel.

    tile(codes, codes_stride, scales, firsts, groups_stride, groups, weights, weight_scales, weights_step, scales_step,
    bias, residual, residual_stride, out, out_stride): addresses, bytes and a count of groups.
    codes: int8 rows; scales: float32 and firsts: int32, [rows, groups], where firsts is what a group's sum starts from.
    weights: [groups * 8, step] of four unsigned bytes an output; weight_scales: [groups, step] float32.
    out = sum over groups of (products + first) * scale * weight_scale, + bias + residual.
    """

    @intrinsic
    def tile(
        _context: Any, _codes: Any, _codes_stride: Any, _scales: Any, _firsts: Any, _groups_stride: Any, _groups: Any,
        _weights: Any, _weight_scales: Any, _weights_step: Any, _scales_step: Any, _bias: Any, _residual: Any,
        _residual_stride: Any, _out: Any, _out_stride: Any,
    ) -> Any:  # fmt: skip
        whole = types.int64

        def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
            (codes, codes_stride, scales, firsts, groups_stride, groups, weights, weight_scales, weights_step,
             scales_step, bias, residual, residual_stride, out, out_stride) = args
            shape = [(r, v) for r in range(rows) for v in range(VECTORS)]
            sums = {at: cgutils.alloca_once_value(b, constant(0.0)) for at in shape}
            with cgutils.for_range(b, groups, intp=INT64) as loop:
                at_group = b.mul(loop.index, int64(FLOAT_BYTES))
                totals: dict[tuple[int, int], Value] = {}
                for r in range(rows):
                    row = b.add(b.mul(groups_stride, int64(r)), at_group)
                    first = _splat(b, b.load(pointer(b, b.add(firsts, row), INT32), align=4))
                    totals.update({(r, v): first for v in range(VECTORS)})
                for quad in range(GROUP // QUAD):
                    index = b.add(b.mul(loop.index, int64(GROUP // QUAD)), int64(quad))
                    panel = b.add(weights, b.mul(weights_step, index))
                    parts = [b.load(pointer(b, b.add(panel, int64(v * VECTOR_BYTES)), VECTOR_INT32), align=4)
                             for v in range(VECTORS)]
                    for r in range(rows):
                        place = b.add(codes, b.add(b.mul(codes_stride, int64(r)), b.mul(index, int64(QUAD))))
                        value = _splat(b, b.load(pointer(b, place, INT32), align=1))
                        for v in range(VECTORS):
                            totals[r, v] = dot_quads(b, totals[r, v], parts[v], value)
                weight_at = b.add(weight_scales, b.mul(scales_step, loop.index))
                factors = [load(b, b.add(weight_at, int64(v * VECTOR_BYTES))) for v in range(VECTORS)]
                for r in range(rows):
                    row = b.add(b.mul(groups_stride, int64(r)), at_group)
                    scale = broadcast(b, b.load(pointer(b, b.add(scales, row), FLOAT), align=4))
                    for v in range(VECTORS):
                        part = b.fmul(b.sitofp(totals[r, v], VECTOR), scale)
                        b.store(fma(b, part, factors[v], b.load(sums[r, v])), sums[r, v])
            for r, v in shape:
                lane = int64(v * VECTOR_BYTES)
                value = b.fadd(b.load(sums[r, v]), load(b, b.add(bias, lane)))
                beside = b.add(b.add(residual, b.mul(residual_stride, int64(r))), lane)
                value = b.fadd(value, load(b, beside))
                store(b, value, b.add(b.add(out, b.mul(out_stride, int64(r))), lane))
            return context.get_dummy_value()

        return types.void(*[whole] * 15), codegen

    return tile


@intrinsic
def quantise_group(_context: Any, _x: Any, _factors: Any, _codes: Any, _scale: Any, _first: Any) -> Any:
    """quantise_group(x, factors, codes, scale, first): 16 floats x * factors become int8 codes and their scale.

    Addresses. scale = largest magnitude / 127; first = -128 * sum of codes, which takes back what unsigned weights
    (128 too large) add. A group of zeros has scale 0; one with a value that is not finite has scale NaN.
    """

    def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
        x, factors, codes, scale, first = args
        values = b.fmul(load(b, x), load(b, factors))
        absolute = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(VECTOR, [VECTOR]), f"llvm.fabs.v{LANES}f32")
        largest = cgutils.get_or_insert_function(  # NaN where one is among them
            b.module, ir.FunctionType(FLOAT, [VECTOR]), f"llvm.vector.reduce.fmaximum.v{LANES}f32")
        top = b.call(largest, [b.call(absolute, [values])])
        finite = b.fcmp_ordered("<", top, ir.Constant(FLOAT, float("inf")))
        some = b.and_(finite, b.fcmp_ordered(">", top, ir.Constant(FLOAT, 1e-30)))
        factor = broadcast(b, b.select(some, b.fdiv(ir.Constant(FLOAT, 127.0), top), ir.Constant(FLOAT, 0.0)))
        nan = ir.Constant(FLOAT, float("nan"))
        b.store(b.select(finite, b.fdiv(top, ir.Constant(FLOAT, 127.0)), nan), pointer(b, scale, FLOAT), align=4)
        rounded = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(VECTOR, [VECTOR]), f"llvm.rint.v{LANES}f32")
        add = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(INT32, [VECTOR_INT32]), f"llvm.vector.reduce.add.v{LANES}i32")
        narrow = ir.VectorType(ir.IntType(8), LANES)
        codes_in_float = b.select(_mask(b, some), b.call(rounded, [b.fmul(values, factor)]), constant(0.0))
        whole = b.fptosi(codes_in_float, VECTOR_INT32)
        b.store(b.trunc(whole, narrow), pointer(b, codes, narrow), align=1)
        b.store(b.mul(b.call(add, [whole]), ir.Constant(INT32, -128)), pointer(b, first, INT32), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


def _mask(b: Builder, bit: Value) -> Value:
    kind = ir.VectorType(ir.IntType(1), LANES)
    first = b.insert_element(ir.Constant(kind, ir.Undefined), bit, ir.Constant(INT32, 0))
    return b.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(VECTOR_INT32, [0] * LANES))
