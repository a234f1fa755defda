"""LLVM IR building blocks for kernels: 16-lane float vectors, fused multiply-add, exp, rounding to int16.

Numba's own loops leave vector width and fused multiply-adds to the optimiser, which may treat the last elements of a
row differently. Here every operation is written out, so a value's bits follow from the source alone.
"""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
FLOAT = ir.FloatType()
INT8, INT16, INT32, INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
VECTOR = ir.VectorType(FLOAT, LANES)
VECTOR_INT32 = ir.VectorType(INT32, LANES)
FLOAT_BYTES = 4
VECTOR_BYTES = LANES * FLOAT_BYTES

HAS_AVX512 = bool(binding.get_host_cpu_features().get("avx512f", False))
"""512-bit registers: 32 of 16 floats. Without them a VECTOR takes two of 16 registers."""

Builder = Any  # llvmlite ships no types
Value = Any


def int64(value: int) -> Value:
    return ir.Constant(INT64, value)


def constant(value: float) -> Value:
    """Return a vector with the same float in every lane."""
    return ir.Constant(VECTOR, [float(value)] * LANES)


def constant_int(value: int) -> Value:
    return ir.Constant(VECTOR_INT32, [value] * LANES)


def pointer(b: Builder, address: Value, kind: Any) -> Value:
    return b.inttoptr(address, kind.as_pointer())


def load(b: Builder, address: Value) -> Value:
    return b.load(pointer(b, address, VECTOR), align=FLOAT_BYTES)


def store(b: Builder, value: Value, address: Value) -> None:
    b.store(value, pointer(b, address, VECTOR), align=FLOAT_BYTES)


def broadcast(b: Builder, scalar: Value) -> Value:
    """Return a vector with the scalar in every lane."""
    lanes = ir.Constant(VECTOR_INT32, [0] * LANES)
    first = b.insert_element(ir.Constant(VECTOR, ir.Undefined), scalar, ir.Constant(INT32, 0))
    return b.shuffle_vector(first, ir.Constant(VECTOR, ir.Undefined), lanes)


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return x * y + z, rounded once."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.fma.v{LANES}f32"), [x, y, z])


def reduce_tree(b: Builder, vector: Value, combine: Any) -> Value:
    """Combine the 16 lanes in pairs, then the pairs, and so on: one order, always."""
    lanes = [b.extract_element(vector, ir.Constant(INT32, lane)) for lane in range(LANES)]
    while len(lanes) > 1:
        lanes = [combine(lanes[i], lanes[i + 1]) for i in range(0, len(lanes), 2)]
    return lanes[0]


def larger(b: Builder, x: Value, y: Value) -> Value:
    """Return the larger of both; y where x is not a number."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


# Cephes expf: ln 2 in two parts, and the polynomial of (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP_TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_ROUND = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest whole number in the low bits
_EXP_MIN, _EXP_MAX = -87.3, 88.0


def exp(b: Builder, x: Value) -> Value:
    """Return exp of each lane, within 2 units in the last place; 0 under -87.3, exp(88) over 88, NaN for NaN."""
    tiny = b.fcmp_ordered("<", x, constant(_EXP_MIN))
    x = b.select(tiny, constant(_EXP_MIN), x)
    x = b.select(b.fcmp_ordered(">", x, constant(_EXP_MAX)), constant(_EXP_MAX), x)
    shifted = fma(b, x, constant(1.4426950408889634), constant(_ROUND))
    n = b.fsub(shifted, constant(_ROUND))
    r = fma(b, n, constant(-_LN2_HIGH), x)
    r = fma(b, n, constant(-_LN2_LOW), r)
    y = constant(_EXP_TERMS[0])
    for term in _EXP_TERMS[1:]:
        y = fma(b, y, r, constant(term))
    y = b.fadd(fma(b, b.fmul(r, r), y, r), constant(1.0))
    bits = b.add(b.shl(b.bitcast(shifted, VECTOR_INT32), constant_int(23)), constant_int(0x3F800000))
    return b.select(tiny, constant(0.0), b.fmul(y, b.bitcast(bits, VECTOR)))


def address_of(context: Any, b: Builder, kind: types.Array, array: Value) -> Value:
    """Return the address of an array's first element, as an integer."""
    return b.ptrtoint(context.make_array(kind)(context, b, array).data, INT64)


@intrinsic
def address(_context: Any, array: Any) -> Any:
    """address(array) -> int64 address of its first element."""

    def codegen(context: Any, b: Builder, signature: Any, args: Any) -> Value:
        return address_of(context, b, signature.args[0], args[0])

    return types.int64(array), codegen


@intrinsic
def sum_of_squares(_context: Any, _source: Any, _count: Any) -> Any:
    """sum_of_squares(address, count) -> float32 sum over count floats, a multiple of 16."""

    def codegen(_ctx: Any, b: Builder, _signature: Any, args: Any) -> Value:
        source, count = args
        total = cgutils.alloca_once_value(b, constant(0.0))
        with cgutils.for_range(b, b.udiv(count, int64(LANES)), intp=INT64) as loop:
            x = load(b, b.add(source, b.mul(loop.index, int64(VECTOR_BYTES))))
            b.store(fma(b, x, x, b.load(total)), total)
        return reduce_tree(b, b.load(total), b.fadd)

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def largest_magnitude(_context: Any, _source: Any, _count: Any) -> Any:
    """largest_magnitude(address, count) -> float32: largest |x| of count floats, a multiple of 16; NaN if one is."""

    def codegen(_ctx: Any, b: Builder, _signature: Any, args: Any) -> Value:
        source, count = args
        top = cgutils.alloca_once_value(b, constant_int(0))
        with cgutils.for_range(b, b.udiv(count, int64(LANES)), intp=INT64) as loop:
            # Without their sign, floats are ordered as their bits are, and every NaN is above infinity.
            x = load(b, b.add(source, b.mul(loop.index, int64(VECTOR_BYTES))))
            bits = b.and_(b.bitcast(x, VECTOR_INT32), constant_int(0x7FFFFFFF))
            before = b.load(top)
            b.store(b.select(b.icmp_signed(">", bits, before), bits, before), top)
        largest = reduce_tree(b, b.load(top), lambda x, y: b.select(b.icmp_signed(">", x, y), x, y))
        return b.bitcast(largest, FLOAT)

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def round_to_int16(_context: Any, _source: Any, _count: Any, _factor: Any, _out: Any) -> Any:
    """round_to_int16(source, count, factor, out): int16 at out become x * factor, half to even; count: as above."""

    def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
        source, count, factor, out = args
        factors = broadcast(b, factor)
        kind = ir.FunctionType(VECTOR, [VECTOR])
        rint = cgutils.get_or_insert_function(b.module, kind, f"llvm.rint.v{LANES}f32")
        narrow = ir.VectorType(INT16, LANES)
        with cgutils.for_range(b, b.udiv(count, int64(LANES)), intp=INT64) as loop:
            x = load(b, b.add(source, b.mul(loop.index, int64(VECTOR_BYTES))))
            whole = b.fptosi(b.call(rint, [b.fmul(x, factors)]), VECTOR_INT32)
            place = b.add(out, b.mul(loop.index, int64(2 * LANES)))
            b.store(b.trunc(whole, narrow), pointer(b, place, narrow), align=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64), codegen


@intrinsic
def silu_multiply(_context: Any, _gate: Any, _up: Any, _out: Any) -> Any:
    """silu_multiply(gate, up, out): 16 floats at address out become gate * sigmoid(gate) * up."""

    def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
        gate = load(b, args[0])
        below = b.fadd(exp(b, b.fsub(constant(-0.0), gate)), constant(1.0))
        store(b, b.fmul(b.fdiv(gate, below), load(b, args[1])), args[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _masked(b: Builder, source: Value, index: Value, valid: Value, other: Value) -> tuple[Value, Value]:
    """Return (16 scores with `other` from lane `valid` of the row on, their address)."""
    place = b.add(source, b.mul(index, int64(VECTOR_BYTES)))
    left = b.trunc(b.sub(valid, b.mul(index, int64(LANES))), INT32)
    first = b.insert_element(ir.Constant(VECTOR_INT32, ir.Undefined), left, ir.Constant(INT32, 0))
    limit = b.shuffle_vector(first, ir.Constant(VECTOR_INT32, ir.Undefined), ir.Constant(VECTOR_INT32, [0] * LANES))
    inside = b.icmp_signed("<", ir.Constant(VECTOR_INT32, list(range(LANES))), limit)
    return b.select(inside, load(b, place), other), place


@intrinsic
def exponentiate_row(_context: Any, _scores: Any, _valid: Any, _count: Any) -> Any:
    """exponentiate_row(address, valid, count) -> float32 sum.

    The first `valid` of `count` floats (a multiple of 16) become exp(score - largest score), the others 0.
    """

    def codegen(_ctx: Any, b: Builder, _signature: Any, args: Any) -> Value:
        scores, valid, count = args
        vectors = b.udiv(count, int64(LANES))
        lowest = constant(float("-inf"))
        top = cgutils.alloca_once_value(b, lowest)
        with cgutils.for_range(b, vectors, intp=INT64) as loop:
            x, _ = _masked(b, scores, loop.index, valid, lowest)
            b.store(larger(b, x, b.load(top)), top)
        peak = broadcast(b, reduce_tree(b, b.load(top), lambda x, y: larger(b, x, y)))
        total = cgutils.alloca_once_value(b, constant(0.0))
        with cgutils.for_range(b, vectors, intp=INT64) as loop:
            x, place = _masked(b, scores, loop.index, valid, lowest)
            weight = exp(b, b.fsub(x, peak))
            store(b, weight, place)
            b.store(b.fadd(weight, b.load(total)), total)
        return reduce_tree(b, b.load(total), b.fadd)

    return types.float32(types.int64, types.int64, types.int64), codegen
