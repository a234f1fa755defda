"""Packed linear layers and embeddings as single calls over numpy arrays, for decoders that run stage by stage."""

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from inference.kernels.linear import PANEL, Packed, linear_panels, narrow_row
from inference.kernels.rowwise import embed_row
from inference.kernels.team import share
from inference.kernels.vector import address

Float32 = npt.NDArray[np.float32]

FEW_ROWS = 32  # so few are narrowed sooner than threads are started
ROW_CHUNK = 48  # rows that one thread takes through a panel at a time, a multiple of every tile's rows


@njit(nogil=True, cache=True)
def _narrow_few(x, weights, scale, bias, narrow, narrow_scale):
    for row in range(x.shape[0]):
        narrow_row(Packed(weights, scale, bias), x, x.shape[1], narrow, narrow_scale, row)


@njit(parallel=True, nogil=True, cache=True)
def _narrow(x, weights, scale, bias, narrow, narrow_scale):
    for row in prange(x.shape[0]):
        narrow_row(Packed(weights, scale, bias), x, x.shape[1], narrow, narrow_scale, row)


def operands(x: Float32, packed: Packed) -> tuple[Float32 | npt.NDArray[np.int16], Float32]:
    """Return rows [rows, k] as packed weights are multiplied with them, and their scales (int8 weights only)."""
    if packed.weights.dtype != np.int8:
        return x, np.empty(0, np.float32)
    rows, k = x.shape
    narrow, narrow_scale = np.zeros((rows, k + k % 2), np.int16), np.empty(rows, np.float32)
    (_narrow_few if rows <= FEW_ROWS else _narrow)(x, *packed, narrow, narrow_scale)
    return narrow, narrow_scale


@njit(parallel=True, nogil=True, cache=True)
def _multiply(inputs, input_scale, weights, scale, bias, zeros, out, members):
    rows, panels = inputs.shape[0], weights.shape[1]
    chunks = (rows + ROW_CHUNK - 1) // ROW_CHUNK
    for member in prange(members):
        packed = Packed(weights, scale, bias)
        for chunk in range(chunks):
            first, last = share(panels, np.int64(member), members)
            row, at = chunk * ROW_CHUNK, first * PANEL * 4
            linear_panels(
                address(inputs) + row * inputs.strides[0], inputs.strides[0], address(input_scale) + row * 4,
                min(ROW_CHUNK, rows - row), packed, 0, first, last,
                address(out) + row * out.strides[0] + at, out.strides[0], address(zeros), 0,
            )  # fmt: skip


def multiply_rows(x: Float32, packed: Packed) -> Float32:
    """Return x [rows, k] times the weights of packed (its layer 0), with its bias, [rows, whole panels].

    A row's bits depend on nothing but the row.
    """
    width = packed.weights.shape[1] * PANEL
    out = np.empty((len(x), width), np.float32)
    if len(x):
        _multiply(*operands(x, packed), *packed, np.zeros(width, np.float32), out, get_num_threads())
    return out


@njit(nogil=True, cache=True)
def _embed(token_ids, weights, scale, bias, out):
    packed = Packed(weights, scale, bias)
    for row in range(token_ids.shape[0]):
        embed_row(token_ids[row], packed, out.shape[1], out[row])


def embed_rows(token_ids: npt.NDArray[np.int64], packed: Packed) -> Float32:
    """Return the rows of packed that token_ids [tokens] name, [tokens, k], k even for int8 weights."""
    size = packed.weights.shape[2] * (2 if packed.weights.dtype == np.int8 else 1)
    out = np.empty((len(token_ids), size), np.float32)
    _embed(token_ids, packed.weights, packed.scale, packed.bias, out)
    return out
