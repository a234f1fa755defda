"""The layout of the paged KV cache that kernels write and read."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Pool(NamedTuple):
    """Keys and values; a block's tokens lie in parts of 16, its layers together, so that a pool fills page by page.

    keys: [blocks, layers, kv_heads, parts, head_dim, 16]: lanes are tokens, so 16 scores come from one vector.
    values: [blocks, layers, kv_heads, parts, 16, padded head_dim]: lanes are elements of the output.
    """

    keys: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
