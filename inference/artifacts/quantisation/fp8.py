"""FP8 weights (E4M3) with a scale for the whole tensor, for each output, or for each block of 128 by 128.

The forms of transformers and DeepSeek (`fp8`: weight_scale_inv, which multiplies in spite of its name), AutoFP8 and
vLLM (`fp8`: weight_scale) and fbgemm (`fbgemm_fp8`: one scale an output).
"""

from typing import Any, ClassVar

import numpy as np

from inference.artifacts.errors import ArtifactError
from inference.artifacts.quantisation.patterns import NotConverted, read_patterns
from inference.artifacts.quantisation.scheme import ActivationScheme, Float32, Layer, Quantisation
from inference.artifacts.tensors import FLOAT_DTYPES, TensorInfo

SCALES = ("weight_scale_inv", "weight_scale")
EXCLUSION_KEYS = ("modules_to_not_convert", "ignored_layers")


class Fp8(Quantisation):
    """FP8 checkpoints of transformers, DeepSeek, AutoFP8 and fbgemm."""

    PARTS: ClassVar = ("weight", *SCALES, "input_scale", "activation_scale", "input_scale_ub")

    def __init__(self, config: dict[str, Any], *, file: str) -> None:
        if (kind := str(config.get("fmt", "e4m3")).lower()) not in ("e4m3", "float8_e4m3fn"):
            raise ArtifactError(file, f"quantization_config: fmt {kind[:40]!r} is not supported (known: e4m3)")
        self._block = _block_size(config.get("weight_block_size"), file)
        key = next((key for key in EXCLUSION_KEYS if config.get(key) is not None), EXCLUSION_KEYS[0])
        self._kept = NotConverted(read_patterns(config.get(key), key=key, file=file), key=key, file=file)
        scheme = str(config.get("activation_scheme", "dynamic")).lower()
        if scheme not in ("dynamic", "static"):
            raise ArtifactError(file, f"quantization_config: activation_scheme is {scheme[:40]!r}, not dynamic or "
                                      "static")
        per = "block of a token" if self._block else "tensor" if scheme == "static" else "token"
        self.activations = ActivationScheme(kind="float", bits=8, dynamic=scheme == "dynamic", per=per)
        self.label = "FP8 (blocks of {} × {})".format(*self._block) if self._block else "FP8"

    def layer_of(self, info: TensorInfo) -> str | None:
        return info.name.removesuffix(".weight") if _is_fp8_weight(info) else None

    def excludes(self, module: str) -> bool:
        return module in self._kept

    def shape(self, layer: Layer) -> tuple[int, ...]:
        outputs, inputs = layer.matrix("weight", "F8_E4M3")
        part = next((part for part in SCALES if part in layer), SCALES[0])
        if self._block is None:
            layer.expect(part, (), (1,), (1, 1), (outputs,), (outputs, 1), dtypes=FLOAT_DTYPES,
                         why=f"the weight is {[outputs, inputs]} and the config names no blocks")
        else:
            rows, columns = (-(-size // block) for size, block in zip((outputs, inputs), self._block, strict=True))
            layer.expect(part, (rows, columns), dtypes=(*FLOAT_DTYPES, "F8_E8M0"),
                         why=f"the weight is {[outputs, inputs]} in blocks of {list(self._block)}")
        return outputs, inputs

    def dequantise(self, layer: Layer) -> Float32:
        scales = layer.floats(next(part for part in SCALES if part in layer))
        return scaled(layer.floats("weight"), scales, self._block)


def scaled(values: Float32, scales: Float32, block: tuple[int, int] | None) -> Float32:
    """Return values [out, in] times their scales: one for all, one an output, or one a block."""
    if block is None:
        return values * (scales.reshape(-1, 1) if scales.size > 1 else scales.reshape(1, 1))
    wide = np.repeat(scales, block[0], axis=0)[: values.shape[0]]
    return values * np.repeat(wide, block[1], axis=1)[:, : values.shape[1]]


def _is_fp8_weight(info: TensorInfo) -> bool:
    return info.dtype == "F8_E4M3" and info.name.endswith(".weight")


def _block_size(value: Any, file: str) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(size) is int and 0 < size < 2**20
                                                                 for size in value):
        raise ArtifactError(file, f"quantization_config: weight_block_size is {str(value)[:40]}, not two sizes")
    return value[0], value[1]
