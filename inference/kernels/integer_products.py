"""The loop over k of integer matrix products: rows of 16-bit activations times panels of 8-bit weights, as LLVM IR.

A panel holds pairs of k side by side for each of its 32 outputs, [k / 2, 32, 2], so that one multiply-add of pairs
(`pmaddwd`, or `vpdpwssd` where the processor has it) takes two steps of k for 16 outputs. Sums are exact 32-bit
integers, so their order doesn't matter and every processor gets the same bits: a row's result can't depend on its tile.
"""

from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils

from inference.kernels.vector import INT8, INT16, INT32, INT64, LANES, VECTOR_INT32, Builder, Value, int64, pointer

MOST_DEPTH = 2048
"""Most k in one chain of integer sums; a deeper layer goes on block by block from the float sum so far."""
PAIR_BYTES = 4  # two int16 activations
_LARGEST_SUM, _LARGEST_WEIGHT, _LARGEST_INT16 = 2**31 - 1, 127, 2**15 - 1

_PAIRS8 = ir.VectorType(INT8, 2 * LANES)
_PAIRS16 = ir.VectorType(INT16, 2 * LANES)
_HALF16 = ir.VectorType(INT16, LANES)
_HALF32 = ir.VectorType(INT32, LANES // 2)
_FEATURES = binding.get_host_cpu_features()


def activation_limit(k: int) -> int:
    """Return the largest magnitude of an activation with which no sum over k can leave 32 bits."""
    return min(_LARGEST_INT16, _LARGEST_SUM // (_LARGEST_WEIGHT * min(k, MOST_DEPTH)))


def _shuffle(b: Builder, first: Value, second: Value, lanes: list[int]) -> Value:
    return b.shuffle_vector(first, second, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))


def _multiply_pairs(b: Builder, x: Value, y: Value) -> Value:
    """Return x[2 i] * y[2 i] + x[2 i + 1] * y[2 i + 1] for 16 pairs of int16, as int32."""
    if _FEATURES.get("avx512bw"):
        kind = ir.FunctionType(VECTOR_INT32, [_PAIRS16] * 2)
        return b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.pmaddw.d.512"), [x, y])
    undefined = ir.Constant(_PAIRS16, ir.Undefined)
    if _FEATURES.get("avx2"):
        kind = ir.FunctionType(_HALF32, [_HALF16] * 2)
        multiply = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx2.pmadd.wd")
        low, high = (
            b.call(multiply, [_shuffle(b, value, undefined, list(range(at, at + LANES))) for value in (x, y)])
            for at in (0, LANES)
        )
        return _shuffle(b, low, high, list(range(LANES)))
    even, odd = list(range(0, 2 * LANES, 2)), list(range(1, 2 * LANES, 2))
    products = [
        b.mul(*(b.sext(_shuffle(b, value, undefined, lanes), VECTOR_INT32) for value in (x, y)))
        for lanes in (even, odd)
    ]
    return b.add(*products)


def _broadcast_pair(b: Builder, place: Value) -> Value:
    pair = b.load(pointer(b, place, INT32), align=PAIR_BYTES)
    first = b.insert_element(ir.Constant(VECTOR_INT32, ir.Undefined), pair, ir.Constant(INT32, 0))
    return b.bitcast(_shuffle(b, first, ir.Constant(VECTOR_INT32, ir.Undefined), [0] * LANES), _PAIRS16)


def integer_products(b: Builder, panels: list[Value], rows: int, vectors: int, args: Any) -> Any:
    """Emit the loop over pairs of k; args: x, x_stride, pairs, bytes between pairs. Return the sums' variables."""
    x, x_stride, pairs, pair_stride = args
    shape = [(r, p, v) for r in range(rows) for p in range(len(panels)) for v in range(vectors)]
    zero = ir.Constant(VECTOR_INT32, [0] * LANES)
    sums = {at: cgutils.alloca_once_value(b, zero) for at in shape}
    row_starts = [b.add(x, b.mul(x_stride, int64(r))) for r in range(rows)]
    with cgutils.for_range(b, pairs, intp=INT64) as loop:
        offset = b.mul(loop.index, pair_stride)
        weights = {}
        for p, panel in enumerate(panels):
            for v in range(vectors):
                place = b.add(b.add(panel, offset), int64(v * 2 * LANES))
                weights[p, v] = b.sext(b.load(pointer(b, place, _PAIRS8), align=1), _PAIRS16)
        for r in range(rows):
            value = _broadcast_pair(b, b.add(row_starts[r], b.mul(loop.index, int64(PAIR_BYTES))))
            for (p, v), weight in weights.items():
                variable = sums[r, p, v]
                b.store(b.add(b.load(variable), _multiply_pairs(b, value, weight)), variable)
    return sums
