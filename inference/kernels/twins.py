"""Slow twins of the kernels in plain numpy: what each computes, without how. Tests compare the two."""

import numpy as np
import numpy.typing as npt

from inference.kernels.dot8 import GROUP
from inference.kernels.integer_products import activation_limit
from inference.kernels.linear import PANEL, Packed
from inference.kernels.pool import Pool
from inference.kernels.projection import Packed8

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


def unpacked(packed: Packed, layer: int) -> Float32:
    """Return the weights [outputs, k] that a packed layer stands for, scale applied, padding included."""
    panels = packed.weights[layer].astype(np.float32)  # [panels, k, 32] or [panels, k / 2, 32, 2]
    if panels.ndim == 4:
        panels = panels.transpose(0, 1, 3, 2).reshape(len(panels), -1, PANEL)
    rows = panels.transpose(0, 2, 1).reshape(len(panels) * PANEL, -1)
    values: Float32 = (rows * packed.scale[layer][:, None]).astype(np.float32)
    return values


def narrowed(x: Float32) -> Float32:
    """Return x [rows, k] rounded to what int8 weights are multiplied with."""
    step = np.abs(x).max(axis=1, keepdims=True) / np.float32(activation_limit(x.shape[1]))
    out: Float32 = (np.rint(x / np.where(step > 0, step, 1)) * step).astype(np.float32)
    return out


def linear(x: Float32, packed: Packed, layer: int) -> Float32:
    """Return x [rows, k] times the layer's weights, with its bias, [rows, outputs]."""
    if packed.weights.dtype == np.int8:
        x = narrowed(x)
    weights = unpacked(packed, layer)[:, : x.shape[1]]  # without the second half of a last pair
    out: Float32 = (x @ weights.T + packed.bias[layer]).astype(np.float32)
    return out


def silu_multiply(gate: Float32, up: Float32) -> Float32:
    """Return gate * sigmoid(gate) * up."""
    wide = gate.astype(np.float64)
    out: Float32 = (wide / (1.0 + np.exp(-wide)) * up).astype(np.float32)
    return out


def rms_norm(x: Float32, weight: Float32, epsilon: float) -> Float32:
    """Return each row of x divided by the root of its mean square, times weight."""
    mean = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
    out: Float32 = (x / np.sqrt(mean + epsilon) * weight).astype(np.float32)
    return out


def rotate(x: Float32, cosine: Float32, sine: Float32) -> Float32:
    """Rotate x [heads, dim] by the angles of one position, [dim / 2] each."""
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)


def read_pool(pool: Pool, table: Int32, layer: int, head: int, count: int) -> tuple[Float32, Float32]:
    """Return a sequence's first `count` keys and values of one KV head, [count, head_dim] each."""
    dim = pool.keys.shape[4]
    keys = pool.keys[table, layer, head].astype(np.float32)  # [blocks, parts, dim, 16]
    values = pool.values[table, layer, head].astype(np.float32)  # [blocks, parts, 16, padded]
    flat = values.reshape(-1, values.shape[-1])
    return keys.transpose(0, 1, 3, 2).reshape(-1, dim)[:count], flat[:count, :dim]


def attention(query: Float32, keys: Float32, values: Float32) -> Float32:
    """Return softmax(query @ keys) @ values for one query [dim], already scaled."""
    scores = keys.astype(np.float64) @ query
    weights = np.exp(scores - scores.max())
    out: Float32 = (weights @ values / weights.sum()).astype(np.float32)
    return out


def project8(x: Float32, packed: Packed8, layer: int) -> Float32:
    """Return x [rows, inputs] times 8-bit weights, both rounded in groups of 16 inputs, with the layer's bias."""
    panels, quads, lanes, four = packed.codes.shape[1:]
    codes = packed.codes[layer].transpose(0, 2, 1, 3).reshape(panels * lanes, quads * four).astype(np.int64) - 128
    scales = packed.scales[layer].transpose(0, 2, 1).reshape(panels * lanes, -1)  # [outputs, groups]
    scaled = (x * packed.factors[layer]).reshape(len(x), scales.shape[1], GROUP)
    steps = np.abs(scaled).max(axis=2) / np.float32(127)  # [rows, groups]
    rounded = np.rint(scaled * (np.float32(1) / np.where(steps > 0, steps, 1))[..., None]).astype(np.int64)
    sums = np.einsum("rgi,ogi->rog", rounded, codes.reshape(len(codes), -1, GROUP))
    out: Float32 = (np.einsum("rog,rg,og->ro", sums, steps, scales) + packed.bias[layer]).astype(np.float32)
    return out
