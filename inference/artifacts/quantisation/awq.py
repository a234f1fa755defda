"""AWQ: 4-bit weights with a scale and a zero point for each group of inputs, packed for AutoAWQ's GEMM kernels.

Format: WQLinear_GEMM of AutoAWQ. qweight [in, out / 8] and qzeros [groups, out / 8] hold eight outputs in a word, in
the order 0, 2, 4, 6, 1, 3, 5, 7; scales is [groups, out].
"""

from typing import Any, ClassVar

from inference.artifacts.errors import ArtifactError
from inference.artifacts.quantisation.packing import unpack
from inference.artifacts.quantisation.patterns import NotConverted, read_patterns
from inference.artifacts.quantisation.scheme import Float32, Layer, Quantisation, group_count, whole
from inference.artifacts.tensors import FLOAT_DTYPES, TensorInfo

BITS = 4
PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # where in a word output 0, 1, … lies
MIDDLE = 8  # the zero point when none is stored


class Awq(Quantisation):
    """AutoAWQ's GEMM layout."""

    PARTS: ClassVar = ("qweight", "qzeros", "scales")

    def __init__(self, config: dict[str, Any], *, file: str) -> None:
        bits = whole(config, "bits", "w_bit", file=file, default=BITS)
        if bits != BITS:
            raise ArtifactError(file, f"quantization_config: AWQ with {bits} bits is not supported (known: {BITS})")
        if (version := str(config.get("version", "gemm")).lower()) != "gemm":
            raise ArtifactError(file, f"quantization_config: AWQ's layout {version[:40]!r} is not supported (known: "
                                      "gemm)")
        self._group_size = whole(config, "group_size", "q_group_size", file=file, default=128)
        if self._group_size == 0:
            raise ArtifactError(file, "quantization_config: group_size is 0")
        self._zero_point = config.get("zero_point", True) is not False
        self._kept = NotConverted(read_patterns(config.get("modules_to_not_convert"), key="modules_to_not_convert",
                                                file=file), key="modules_to_not_convert", file=file)
        groups = f"groups of {self._group_size}" if self._group_size > 0 else "one group a row"
        self.label = f"AWQ INT4 ({groups})"

    def layer_of(self, info: TensorInfo) -> str | None:
        return info.name.removesuffix(".qweight") if info.name.endswith(".qweight") else None

    def excludes(self, module: str) -> bool:
        return module in self._kept

    def shape(self, layer: Layer) -> tuple[int, ...]:
        inputs, words = layer.matrix("qweight", "I32", "U32")
        outputs = 8 * words
        groups = group_count(inputs, self._group_size if self._group_size > 0 else inputs, layer.name)
        why = f"{inputs:,} inputs in {self.label}"
        layer.expect("scales", (groups, outputs), dtypes=FLOAT_DTYPES, why=why)
        if self._zero_point or "qzeros" in layer:
            layer.expect("qzeros", (groups, words), dtypes=("I32", "U32"), why=why)
        return outputs, inputs

    def dequantise(self, layer: Layer) -> Float32:
        numbers = _in_order(unpack(layer.integers("qweight"), BITS))  # [in, out]
        scales = layer.floats("scales")  # [groups, out]
        groups = len(scales)
        values = numbers.reshape(groups, -1, numbers.shape[1]).astype("f4")
        values -= _in_order(unpack(layer.integers("qzeros"), BITS))[:, None] if "qzeros" in layer else MIDDLE
        values *= scales[:, None]
        result: Float32 = values.reshape(numbers.shape).T.copy()
        return result


def _in_order(numbers: Any) -> Any:
    """Put the eight numbers of each word into the order of outputs. [rows, outputs]"""
    return numbers.reshape(len(numbers), -1, 8)[:, :, PLACES].reshape(len(numbers), -1)
