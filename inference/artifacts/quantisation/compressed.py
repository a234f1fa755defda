"""compressed-tensors: whole-number and FP8 weights with a scale for a tensor, an output, a group or a block.

Formats pack-quantized (weight_packed, weight_shape), int-quantized, float-quantized and naive-quantized (weight), with
weight_scale and, when asymmetric, weight_zero_point. Source: the compressed-tensors package's compressors.
"""

from typing import Any, ClassVar

import numpy as np

from inference.artifacts.errors import ArtifactError
from inference.artifacts.quantisation.compressed_config import PACKED, Group, read_groups
from inference.artifacts.quantisation.fp8 import scaled
from inference.artifacts.quantisation.packing import unpack
from inference.artifacts.quantisation.patterns import Targets, read_patterns
from inference.artifacts.quantisation.scheme import Float32, Layer, Quantisation, group_count
from inference.artifacts.tensors import FLOAT_DTYPES, TensorInfo


class CompressedTensors(Quantisation):
    """A checkpoint of llm-compressor, Neural Magic or `inference.quantize`."""

    PARTS: ClassVar = ("weight", "weight_packed", "weight_shape", "weight_scale", "weight_zero_point", "weight_g_idx",
                       "input_scale", "input_zero_point", "output_scale", "output_zero_point")

    def __init__(self, config: dict[str, Any], *, file: str) -> None:
        self._file = file
        self._groups = read_groups(config, file=file)
        self._ignored = Targets(read_patterns(config.get("ignore"), key="ignore", file=file), key="ignore", file=file)
        self.label = "compressed-tensors " + " and ".join(dict.fromkeys(group.label for group in self._groups))
        schemes = [group.activations for group in self._groups if group.activations is not None]
        self.activations = schemes[0] if schemes else None

    def layer_of(self, info: TensorInfo) -> str | None:
        if info.name.endswith(".weight_packed"):
            return info.name.removesuffix(".weight_packed")
        if info.name.endswith(".weight") and info.dtype in ("I8", "F8_E4M3"):
            return info.name.removesuffix(".weight")
        return None

    def excludes(self, module: str) -> bool:
        return module in self._ignored or not any(module in group.targets for group in self._groups)

    def _group_of(self, module: str) -> Group:
        """Return the group that aims at a module: by name or pattern before the class."""
        named = [group for group in self._groups if group.targets.named(module)]
        return (named or [group for group in self._groups if module in group.targets])[0]

    def shape(self, layer: Layer) -> tuple[int, ...]:
        group = self._group_of(layer.name)
        stored_shape = self._packed_shape if group.format == PACKED else self._plain_shape
        outputs, inputs = stored_shape(layer, group)
        why = f"the weight is {[outputs, inputs]} as {group.label}"
        scales = _scale_shapes(group, outputs, inputs, layer.name)
        layer.expect("weight_scale", *scales, dtypes=(*FLOAT_DTYPES, "F8_E8M0"), why=why)
        if not group.symmetric:
            self._check_zero_point(layer, group, outputs, scales, why)
        if "weight_g_idx" in layer:
            layer.expect("weight_g_idx", (inputs,), dtypes=("I32", "I64"), why=why)
        return outputs, inputs

    def _packed_shape(self, layer: Layer, group: Group) -> tuple[int, int]:
        outputs, words = layer.matrix("weight_packed", "I32", "U32")
        layer.expect("weight_shape", (2,), dtypes=("I64", "I32"), why="it holds two sizes")
        stored = [int(size) for size in layer.integers("weight_shape")]
        if stored[0] != outputs or not stored[1] > 0 or -(-stored[1] * group.bits // 32) != words:
            raise ArtifactError("weights", f"tensor {layer.info('weight_packed').name[:200]!r} has the shape "
                                           f"{[outputs, words]}, which can't hold the {stored} of {group.bits} bits "
                                           "that weight_shape says")
        return stored[0], stored[1]

    def _plain_shape(self, layer: Layer, group: Group) -> tuple[int, int]:
        return layer.matrix("weight", "F8_E4M3" if group.kind == "float" else "I8")

    def _check_zero_point(self, layer: Layer, group: Group, outputs: int, scales: tuple[tuple[int, ...], ...],
                          why: str) -> None:
        if group.format == PACKED and group.strategy in ("group", "channel"):
            rows = -(-outputs * group.bits // 32)
            layer.expect("weight_zero_point", (rows, scales[0][-1]), dtypes=("I32", "U32"), why=why)
        else:
            layer.expect("weight_zero_point", *scales, dtypes=("I8",), why=why)

    def dequantise(self, layer: Layer) -> Float32:
        group = self._group_of(layer.name)
        if group.format == PACKED:
            _, inputs = layer.integers("weight_shape")
            values = unpack(layer.integers("weight_packed"), group.bits)[:, :inputs].astype("f4")
            values -= 2 ** (group.bits - 1)
        else:
            values = layer.values("weight").astype("f4")
        zeros = None if group.symmetric else self._zero_points(layer, group, len(values))
        scales = layer.floats("weight_scale")
        if group.strategy == "group":
            return _grouped(layer, values, scales, zeros)
        if zeros is not None:
            values -= zeros.reshape(-1, 1) if zeros.size > 1 else zeros.reshape(1, 1)
        return scaled(values, scales, group.block)

    def _zero_points(self, layer: Layer, group: Group, outputs: int) -> Float32:
        stored = layer.integers("weight_zero_point")
        if group.format != PACKED or group.strategy not in ("group", "channel"):
            return stored.astype("f4")
        numbers = unpack(stored.T, group.bits)[:, :outputs].T.astype("f4")
        result: Float32 = numbers - 2 ** (group.bits - 1)
        return result


def _scale_shapes(group: Group, outputs: int, inputs: int, layer: str) -> tuple[tuple[int, ...], ...]:
    if group.strategy == "tensor":
        return (), (1,), (1, 1)
    if group.strategy == "channel":
        return (outputs, 1), (outputs,)
    if group.block is not None:
        return ((-(-outputs // group.block[0]), -(-inputs // group.block[1])),)
    return ((outputs, group_count(inputs, group.group_size, layer)),)


def _grouped(layer: Layer, values: Float32, scales: Float32, zeros: Float32 | None) -> Float32:
    """Apply scales and zero points [out, groups] to values [out, in]; weight_g_idx may say each input's group."""
    groups, inputs = scales.shape[1], values.shape[1]
    group_of = np.arange(inputs) // (inputs // groups)
    if "weight_g_idx" in layer and (stored := layer.integers("weight_g_idx")).max() >= 0:  # all -1: in order
        group_of = stored
        if group_of.min() < 0 or group_of.max() >= groups:
            raise ArtifactError("weights", f"tensor {layer.info('weight_g_idx').name[:200]!r} names a group outside "
                                           f"the {groups:,} that there are")
    if zeros is not None:
        values -= zeros[:, group_of]
    values *= scales[:, group_of]
    return values
