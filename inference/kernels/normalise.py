"""Layer norm and GELU of a row, as LLVM IR: one order of sums, whatever shares the batch."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from inference.kernels.vector import (
    FLOAT,
    INT64,
    LANES,
    VECTOR_BYTES,
    Builder,
    Value,
    broadcast,
    constant,
    fma,
    int64,
    load,
    reduce_tree,
    store,
)


def _at(b: Builder, base: Value, index: Value) -> Value:
    return b.add(base, b.mul(index, int64(VECTOR_BYTES)))


def _sum(b: Builder, count: Value, term: Any) -> Value:
    """Sum term(total, index) over `count` vectors, then the lanes in pairs."""
    total = cgutils.alloca_once_value(b, constant(0.0))
    with cgutils.for_range(b, count, intp=INT64) as loop:
        b.store(term(b.load(total), loop.index), total)
    return reduce_tree(b, b.load(total), b.fadd)


@intrinsic
def layer_norm_row(_context: Any, _x: Any, _size: Any, _weight: Any, _bias: Any, _epsilon: Any, _out: Any) -> Any:
    """layer_norm_row(x, size, weight, bias, epsilon, out): addresses of `size` floats, a multiple of 16.

    out = (x - mean) / sqrt(variance + epsilon) * weight + bias; out may be x.
    """

    def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
        x, size, weight, bias, epsilon, out = args
        vectors = b.udiv(size, int64(LANES))
        count = b.uitofp(size, FLOAT)
        mean = broadcast(b, b.fdiv(_sum(b, vectors, lambda total, i: b.fadd(total, load(b, _at(b, x, i)))), count))

        def squared(total: Value, index: Value) -> Value:
            centred = b.fsub(load(b, _at(b, x, index)), mean)
            return fma(b, centred, centred, total)

        variance = b.fdiv(_sum(b, vectors, squared), count)
        root = b.call(
            cgutils.get_or_insert_function(b.module, ir.FunctionType(FLOAT, [FLOAT]), "llvm.sqrt.f32"),
            [b.fadd(variance, epsilon)],
        )
        inverse = broadcast(b, b.fdiv(ir.Constant(FLOAT, 1.0), root))
        with cgutils.for_range(b, vectors, intp=INT64) as loop:
            scaled = b.fmul(b.fsub(load(b, _at(b, x, loop.index)), mean), inverse)
            value = fma(b, scaled, load(b, _at(b, weight, loop.index)), load(b, _at(b, bias, loop.index)))
            store(b, value, _at(b, out, loop.index))
        return context.get_dummy_value()

    whole = types.int64
    return types.void(whole, whole, whole, whole, types.float32, whole), codegen


# Eigen's generic_fast_erf_float: x * P(x^2) / Q(x^2) on [-4, 4], within 2e-7 of erf.
_ERF_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
          -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)
_ERF_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
          -1.42647390514189e-02)
_ERF_LIMIT = 4.0
_ROOT_HALF = 0.7071067811865476


def _polynomial(b: Builder, x: Value, terms: tuple[float, ...]) -> Value:
    value = constant(terms[0])
    for term in terms[1:]:
        value = fma(b, value, x, constant(term))
    return value


def erf(b: Builder, x: Value) -> Value:
    """Return erf of each lane, within 2e-7; 1 or -1 beyond 4. NaN gives NaN."""
    limit = constant(_ERF_LIMIT)
    x = b.select(b.fcmp_ordered(">", x, limit), limit, x)
    low = constant(-_ERF_LIMIT)
    x = b.select(b.fcmp_ordered("<", x, low), low, x)
    square = b.fmul(x, x)
    return b.fdiv(b.fmul(x, _polynomial(b, square, _ERF_P)), _polynomial(b, square, _ERF_Q))


@intrinsic
def gelu_row(_context: Any, _x: Any, _count: Any) -> Any:
    """gelu_row(x, count): `count` floats at x, a multiple of 16, become x * (1 + erf(x / sqrt 2)) / 2."""

    def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
        with cgutils.for_range(b, b.udiv(args[1], int64(LANES)), intp=INT64) as loop:
            place = _at(b, args[0], loop.index)
            x = load(b, place)
            half = b.fmul(x, constant(0.5))
            store(b, fma(b, half, erf(b, b.fmul(x, constant(_ROOT_HALF))), half), place)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def scale_row(_context: Any, _x: Any, _count: Any, _factor: Any) -> Any:
    """scale_row(x, count, factor): `count` floats at x, a multiple of 16, become x * factor."""

    def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
        factor = broadcast(b, args[2])
        with cgutils.for_range(b, b.udiv(args[1], int64(LANES)), intp=INT64) as loop:
            place = _at(b, args[0], loop.index)
            store(b, b.fmul(load(b, place), factor), place)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), codegen
