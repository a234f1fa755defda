"""MXFP4: gpt-oss' stacks of experts in 4-bit floats (E2M1), 32 of which share a power of two.

Source: OCP microscaling formats 1.0, section 5.3.3, and transformers' integrations/mxfp4.py for what lies where.
"""

from typing import Any, ClassVar

import numpy as np

from inference.artifacts.errors import ArtifactError
from inference.artifacts.quantisation.patterns import NotConverted, read_patterns
from inference.artifacts.quantisation.scheme import Float32, Layer, Quantisation
from inference.artifacts.tensors import TensorInfo

BLOCK = 32  # values that share a scale, two in a byte, the first in the lower half
BIAS = 127  # of a scale's exponent
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
PAIRS = np.stack([np.tile(E2M1, 16), np.repeat(E2M1, 16)], axis=1)  # [byte, 2]
KEPT = "modules_to_not_convert"


class Mxfp4(Quantisation):
    """Stacks of experts: blocks [experts, out, in / 32, 16] and scales [experts, out, in / 32], both bytes.

    What they stand for is stored as transformers has it, [experts, in, out].
    """

    PARTS: ClassVar = ("blocks", "scales")
    JOINT: ClassVar = "_"
    WEIGHT: ClassVar = ""
    label = "MXFP4"

    def __init__(self, config: dict[str, Any], *, file: str) -> None:
        self._kept = NotConverted(read_patterns(config.get(KEPT), key=KEPT, file=file), key=KEPT, file=file)

    def layer_of(self, info: TensorInfo) -> str | None:
        return info.name.removesuffix("_blocks") if info.name.endswith("_blocks") else None

    def excludes(self, module: str) -> bool:
        return module in self._kept

    def shape(self, layer: Layer) -> tuple[int, ...]:
        shape = layer.info("blocks").shape
        if len(shape) != 4 or 0 in shape:
            raise ArtifactError("weights", f"tensor {f'{layer.name}_blocks'[:200]!r} has the shape {list(shape)}, "
                                           "expected four dimensions")
        layer.expect("blocks", (*shape[:3], BLOCK // 2), dtypes=("U8",), why="two values a byte")
        layer.expect("scales", shape[:3], dtypes=("U8",), why="a scale for each block")
        return shape[0], shape[2] * BLOCK, shape[1]

    def dequantise(self, layer: Layer) -> Float32:
        experts, inputs, outputs = self.shape(layer)
        values = PAIRS[layer.integers("blocks")].reshape(experts, outputs, -1, BLOCK)
        np.ldexp(values, layer.integers("scales").astype(np.int32)[..., None] - BIAS, out=values)
        dequantised: Float32 = values.reshape(experts, outputs, inputs).swapaxes(1, 2)
        return dequantised
