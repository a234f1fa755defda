"""Packed linear layers and embeddings as single calls over numpy arrays, for decoders that run stage by stage."""

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from inference.kernels.linear import PANEL, Packed, linear_panels
from inference.kernels.rowwise import embed_row
from inference.kernels.team import share
from inference.kernels.vector import address

Float32 = npt.NDArray[np.float32]

ROW_CHUNK = 48  # rows that one thread takes through a panel at a time, a multiple of every tile's rows


@njit(parallel=True, nogil=True, cache=True)
def _multiply(x, weights, scale, bias, zeros, out, members):
    rows, panels = x.shape[0], weights.shape[1]
    chunks = (rows + ROW_CHUNK - 1) // ROW_CHUNK
    for member in prange(members):
        packed = Packed(weights, scale, bias)
        for chunk in range(chunks):
            first, last = share(panels, np.int64(member), members)
            row, at = chunk * ROW_CHUNK, first * PANEL * 4
            linear_panels(
                address(x) + row * x.strides[0], x.strides[0], min(ROW_CHUNK, rows - row), weights.shape[2], packed,
                0, first, last, address(out) + row * out.strides[0] + at, out.strides[0], address(zeros), 0,
            )  # fmt: skip


def multiply_rows(x: Float32, packed: Packed) -> Float32:
    """Return x [rows, k] times the weights of packed (its layer 0), with its bias, [rows, whole panels].

    A row's bits depend on nothing but the row.
    """
    width = packed.weights.shape[1] * PANEL
    out = np.empty((len(x), width), np.float32)
    if len(x):
        _multiply(x, packed.weights, packed.scale, packed.bias, np.zeros(width, np.float32), out, get_num_threads())
    return out


@njit(nogil=True, cache=True)
def _embed(token_ids, weights, scale, bias, out):
    packed = Packed(weights, scale, bias)
    for row in range(token_ids.shape[0]):
        embed_row(token_ids[row], packed, out[row])


def embed_rows(token_ids: npt.NDArray[np.int64], packed: Packed) -> Float32:
    """Return the rows of packed that token_ids [tokens] name, [tokens, k]."""
    out = np.empty((len(token_ids), packed.weights.shape[2]), np.float32)
    _embed(token_ids, packed.weights, packed.scale, packed.bias, out)
    return out
