"""bitsandbytes: 4-bit weights as indices into a table (NF4, FP4) with a scale a block, and 8-bit weights (LLM.int8()).

Format: QuantState.as_dict of bitsandbytes.functional. Two numbers share a byte, the first in the upper half; the scales
of blocks (absmax) may themselves be stored in 8 bits with a scale for each 256 of them (double quantisation).
"""

import json
import math
from typing import Any, ClassVar

import numpy as np

from inference.artifacts.errors import ArtifactError
from inference.artifacts.quantisation.patterns import NotConverted, read_patterns
from inference.artifacts.quantisation.scheme import Float32, Layer, Quantisation
from inference.artifacts.tensors import TensorInfo

KINDS = ("nf4", "fp4")
STATES = tuple(f"weight.quant_state.bitsandbytes__{kind}" for kind in KINDS)
MAX_STATE_BYTES = 10_000


class BitsAndBytes4(Quantisation):
    """4-bit checkpoints, with or without double quantisation."""

    PARTS: ClassVar = ("weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
                       *STATES)

    def __init__(self, config: dict[str, Any], *, file: str) -> None:
        self._kept = _kept(config, file)
        nested = ", double quantisation" if config.get("bnb_4bit_use_double_quant") else ""
        self.label = f"bitsandbytes {str(config.get('bnb_4bit_quant_type', 'fp4')).upper()[:10]}{nested}"

    def layer_of(self, info: TensorInfo) -> str | None:
        return info.name.removesuffix(".weight") if info.dtype == "U8" and info.name.endswith(".weight") else None

    def excludes(self, module: str) -> bool:
        return module in self._kept

    def shape(self, layer: Layer) -> tuple[int, ...]:
        state = _state(layer)
        shape, block = state["shape"], state["blocksize"]
        count = math.prod(shape)
        why = f"the weight is {shape} in blocks of {block}"
        half = -(-count // 2)
        layer.expect("weight", (half, 1), (1, half), (half,), dtypes=("U8",), why=why)
        layer.expect("weight.quant_map", (16,), dtypes=("F32",), why="it holds the 16 values")
        blocks = -(-count // block)
        if "nested_blocksize" in state:
            layer.expect("weight.absmax", (blocks,), dtypes=("U8",), why=why)
            layer.expect("weight.nested_quant_map", (256,), dtypes=("F32",), why="it holds the 256 values")
            layer.expect("weight.nested_absmax", (-(-blocks // state["nested_blocksize"]),), dtypes=("F32",), why=why)
        else:
            layer.expect("weight.absmax", (blocks,), dtypes=("F32",), why=why)
        return tuple(shape)

    def dequantise(self, layer: Layer) -> Float32:
        state = _state(layer)
        octets = layer.integers("weight").reshape(-1)
        indices = np.stack([octets >> 4, octets & 15], axis=1).reshape(-1)[: math.prod(state["shape"])]
        values = layer.floats("weight.quant_map")[indices]
        if "nested_blocksize" in state:
            levels = layer.floats("weight.nested_quant_map")[layer.integers("weight.absmax")]
            outer = layer.floats("weight.nested_absmax")
            absmax: Float32 = levels * _spread(outer, state["nested_blocksize"], len(levels))
            absmax += np.float32(state["nested_offset"])
        else:
            absmax = layer.floats("weight.absmax")
        result: Float32 = (values * _spread(absmax, state["blocksize"], len(values))).reshape(state["shape"])
        return result


class BitsAndBytes8(Quantisation):
    """8-bit checkpoints: weight times SCB / 127, one scale an output."""

    PARTS: ClassVar = ("weight", "SCB", "weight_format")

    def __init__(self, config: dict[str, Any], *, file: str) -> None:
        self._kept = _kept(config, file)
        self.label = "bitsandbytes INT8"

    def layer_of(self, info: TensorInfo) -> str | None:
        return info.name.removesuffix(".weight") if info.dtype == "I8" and info.name.endswith(".weight") else None

    def excludes(self, module: str) -> bool:
        return module in self._kept

    def shape(self, layer: Layer) -> tuple[int, ...]:
        outputs, inputs = layer.matrix("weight", "I8")
        layer.expect("SCB", (outputs,), dtypes=("F32",), why=f"the weight is {[outputs, inputs]}")
        if "weight_format" in layer and int(layer.integers("weight_format").reshape(-1)[0]) != 0:
            raise ArtifactError("weights", f"tensor {layer.info('weight_format').name[:200]!r} asks for a layout of "
                                           "the GPU's kernels, which is not supported (known: row)")
        return outputs, inputs

    def dequantise(self, layer: Layer) -> Float32:
        result: Float32 = layer.integers("weight").astype(np.float32)
        result *= (layer.floats("SCB") / np.float32(127))[:, None]
        return result


def bits_and_bytes(config: dict[str, Any], *, file: str) -> Quantisation:
    """Return the reader of a bitsandbytes config, 4 bits or 8."""
    if config.get("load_in_4bit") or config.get("_load_in_4bit"):
        return BitsAndBytes4(config, file=file)
    return BitsAndBytes8(config, file=file)


def _kept(config: dict[str, Any], file: str) -> NotConverted:
    key = "llm_int8_skip_modules"
    return NotConverted(read_patterns(config.get(key), key=key, file=file), key=key, file=file)


def _spread(scales: Float32, block: int, count: int) -> Float32:
    return np.repeat(scales, block)[:count]


def _state(layer: Layer) -> dict[str, Any]:
    """Return the packed state of a layer, checked: shape, blocksize and, when nested, its size and offset."""
    part = next((part for part in STATES if part in layer), STATES[0])
    info = layer.info(part)
    if info.dtype != "U8" or info.nbytes > MAX_STATE_BYTES:
        raise ArtifactError("weights", f"tensor {info.name[:200]!r} is not a short run of bytes")
    try:
        state = json.loads(layer.integers(part).tobytes())
    except ValueError:
        raise ArtifactError("weights", f"tensor {info.name[:200]!r} does not hold JSON") from None
    state = state if isinstance(state, dict) else {}
    shape = state.get("shape")
    sizes = [state.get("blocksize"), state.get("nested_blocksize", 1), *(shape if isinstance(shape, list) else ())]
    if not all(type(size) is int and 0 < size < 2**40 for size in sizes) or len(sizes) != 4:
        raise ArtifactError("weights", f"tensor {info.name[:200]!r} does not hold a blocksize and a shape of two sizes")
    if "nested_blocksize" in state and type(state.get("nested_offset")) is not float:
        raise ArtifactError("weights", f"tensor {info.name[:200]!r} lacks nested_offset")
    result: dict[str, Any] = state
    return result
