"""Kernels that treat each token by itself: embedding rows, RMS norm, rotary position with the KV write."""

import numpy as np
from numba import njit

from inference.kernels.linear import weight_at
from inference.kernels.vector import LANES, address, sum_of_squares


@njit
def embed_row(token, packed, size, x):
    """x[: size] = the embedding of a token, read from output `token` of the packed matrix (layer 0); zeros after it."""
    scale = packed.scale[0, token]
    for i in range(size):
        x[i] = np.float32(weight_at(packed, token, i)) * scale
    for i in range(size, x.shape[0]):
        x[i] = np.float32(0.0)


@njit
def rms_norm_row(x, size, weight, epsilon, out):
    """out[: size] = x / sqrt(mean(x^2) + epsilon) * weight. x is padded with zeros to a multiple of 16."""
    mean = sum_of_squares(address(x), x.shape[0]) / np.float32(size)
    inverse = np.float32(1.0) / np.sqrt(mean + epsilon)
    for i in range(size):
        out[i] = x[i] * inverse * weight[i]


@njit
def rotate_heads(x, heads, dim, cosine, sine):
    """Rotate x [heads * dim] in place: element i of a head's first half pairs with element i of its second."""
    half = dim // 2
    for head in range(heads):
        for i in range(half):
            low, high = head * dim + i, head * dim + half + i
            a, b = x[low], x[high]
            x[low] = a * cosine[i] - b * sine[i]
            x[high] = b * cosine[i] + a * sine[i]


@njit
def write_kv(key, value, slot, layer, keys, values):
    """Store a token's key and value [kv_heads * dim] in the pool (kernels.pool has its layout)."""
    heads, parts, dim = keys.shape[2], keys.shape[3], keys.shape[4]
    block, offset = slot // (parts * LANES), slot % (parts * LANES)
    part, lane = offset // LANES, offset % LANES
    for head in range(heads):
        for i in range(dim):
            keys[block, layer, head, part, i, lane] = key[head * dim + i]
            values[block, layer, head, part, lane, i] = value[head * dim + i]
