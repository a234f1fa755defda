"""GPTQ: weights of 2 to 8 bits with a scale and a zero point for each group of inputs, as AutoGPTQ and GPTQModel store.

qweight [in * bits / 32, out] packs inputs, qzeros [groups, out * bits / 32] packs outputs, scales is [groups, out] and
g_idx [in] says each input's group (act-order puts them out of order). Format v1 stores zero points less one, v2 as is.
"""

from typing import Any, ClassVar

import numpy as np

from inference.artifacts.errors import ArtifactError
from inference.artifacts.quantisation.packing import unpack
from inference.artifacts.quantisation.patterns import NotConverted, read_patterns
from inference.artifacts.quantisation.scheme import Float32, Layer, Quantisation, group_count, whole
from inference.artifacts.tensors import FLOAT_DTYPES, TensorInfo

WIDTHS = (2, 3, 4, 8)
FORMATS = {"gptq": 1, "gptq_v2": 0}  # what is added to a stored zero point


class Gptq(Quantisation):
    """AutoGPTQ's layout, both conventions of zero points."""

    PARTS: ClassVar = ("qweight", "qzeros", "scales", "g_idx")

    def __init__(self, config: dict[str, Any], *, file: str) -> None:
        self._bits = whole(config, "bits", file=file)
        if self._bits not in WIDTHS:
            raise ArtifactError(file, f"quantization_config: GPTQ with {self._bits} bits is not supported (known: "
                                      f"{', '.join(map(str, WIDTHS))})")
        self._group_size = whole(config, "group_size", file=file, default=128)
        if self._group_size == 0:
            raise ArtifactError(file, "quantization_config: group_size is 0")
        form = str(config.get("checkpoint_format") or "gptq").lower()
        if form not in FORMATS:
            raise ArtifactError(file, f"quantization_config: checkpoint_format {form[:40]!r} is not supported (known: "
                                      f"{', '.join(FORMATS)})")
        if (words := str(config.get("pack_dtype") or "int32")) != "int32":
            raise ArtifactError(file, f"quantization_config: pack_dtype {words[:40]!r} is not supported (known: int32)")
        if config.get("dynamic"):
            raise ArtifactError(file, "quantization_config: dynamic: settings of single layers are not supported")
        self._added = FORMATS[form]
        self._kept = NotConverted(read_patterns(config.get("modules_to_not_convert"), key="modules_to_not_convert",
                                                file=file), key="modules_to_not_convert", file=file)
        groups = f"groups of {self._group_size}" if self._group_size > 0 else "one group a row"
        order = ", act-order" if config.get("desc_act") else ""
        self.label = f"GPTQ INT{self._bits} ({groups}{order})"

    def layer_of(self, info: TensorInfo) -> str | None:
        return info.name.removesuffix(".qweight") if info.name.endswith(".qweight") else None

    def excludes(self, module: str) -> bool:
        return module in self._kept

    def shape(self, layer: Layer) -> tuple[int, ...]:
        rows, outputs = layer.matrix("qweight", "I32", "U32")
        if rows * 32 % self._bits or outputs * self._bits % 32:
            raise ArtifactError("weights", f"tensor {layer.info('qweight').name[:200]!r} has the shape "
                                           f"{[rows, outputs]}, which {self._bits} bits a number can't fill")
        inputs = rows * 32 // self._bits
        groups = group_count(inputs, self._group_size if self._group_size > 0 else inputs, layer.name)
        why = f"{inputs:,} inputs in {self.label}"
        layer.expect("scales", (groups, outputs), dtypes=FLOAT_DTYPES, why=why)
        layer.expect("qzeros", (groups, outputs * self._bits // 32), dtypes=("I32", "U32"), why=why)
        if "g_idx" in layer:
            layer.expect("g_idx", (inputs,), dtypes=("I32", "I64"), why=why)
        return outputs, inputs

    def dequantise(self, layer: Layer) -> Float32:
        numbers = unpack(layer.integers("qweight").T, self._bits)  # [out, in]
        scales = layer.floats("scales")  # [groups, out]
        zeros = unpack(layer.integers("qzeros"), self._bits) + np.uint8(self._added) & np.uint8(2**self._bits - 1)
        groups, inputs = len(scales), numbers.shape[1]
        group_of = np.arange(inputs) // (inputs // groups)
        if "g_idx" in layer:
            group_of = layer.integers("g_idx")
            if group_of.min() < 0 or group_of.max() >= groups:
                raise ArtifactError("weights", f"tensor {layer.info('g_idx').name[:200]!r} names a group outside the "
                                               f"{groups:,} that there are")
        values = numbers.astype("f4")
        values -= zeros.T[:, group_of]
        values *= scales.T[:, group_of]
        return values
