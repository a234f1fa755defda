"""The functions that follow a layer over pooled vectors, in numpy."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Float64) -> Float64:
    """1 / (1 + exp(-x)), without overflow."""
    small: Float64 = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


_FUNCTIONS: dict[str, Callable[[Float64], Float64]] = {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * 0.5 * (1.0 + _erf(x / math.sqrt(2.0))),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "sigmoid": sigmoid,
}


def activate(x: Float32, name: str) -> Float32:
    """Return the function of that name of x, computed in float64."""
    return _FUNCTIONS[name](x.astype(np.float64)).astype(np.float32)
