"""Packed linear layers: room for every decoder layer's panels, filled from float32 tensors one at a time."""

import numpy as np
import numpy.typing as npt

from inference.kernels.linear import PANEL, Packed, copy_rows, quantise_rows
from inference.spec import Mode

Float32 = npt.NDArray[np.float32]

def panels_for(outputs: int) -> int:
    """Return how many panels of 32 outputs hold that many."""
    return -(-outputs // PANEL)


def padded(size: int) -> int:
    """Return the size rounded up to whole panels."""
    return panels_for(size) * PANEL


def packed_room(*, layers: int, panels: int, inputs: int, mode: Mode) -> Packed:
    """Return zeroed room for weights of that many inputs, with scale and bias [layers, panels * 32]; see Packed."""
    weights: npt.NDArray[np.generic]
    if mode == "int8":
        weights = np.zeros((layers, panels, -(-inputs // 2), PANEL, 2), np.int8)
    else:
        weights = np.zeros((layers, panels, inputs, PANEL), np.float32)
    return Packed(
        weights=weights,
        scale=np.zeros((layers, panels * PANEL), np.float32),
        bias=np.zeros((layers, panels * PANEL), np.float32),
    )


def fill(packed: Packed, layer: int, values: Float32, *, first_output: int = 0, step: int = 1) -> None:
    """Quantise and store values [outputs, inputs] of one layer.

    first_output: where the first row goes. step: 1, or 2 to take every second panel (gate and up in turn); rows then
    start on a panel's border.
    """
    store = quantise_rows if packed.weights.dtype == np.int8 else copy_rows
    store(np.ascontiguousarray(values, np.float32), packed.weights[layer], packed.scale[layer], first_output, step)


def fill_bias(packed: Packed, layer: int, bias: Float32, *, first_output: int = 0, step: int = 1) -> None:
    """Store a bias [outputs] where `fill` with the same arguments stores its rows."""
    for row in range(0, len(bias), PANEL):
        part = bias[row : row + PANEL]
        start = first_output + row * step
        packed.bias[layer, start : start + len(part)] = part


def packed_bytes(packed: Packed) -> int:
    """Return the bytes that the layer's arrays hold."""
    return packed.weights.nbytes + packed.scale.nbytes + packed.bias.nbytes
