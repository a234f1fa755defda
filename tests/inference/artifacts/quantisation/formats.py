"""Ways of storing a linear layer, made with the field's own code where there is some, and what each stands for."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationScheme

from tests.inference.artifacts.quantisation.packed_models import StoreLayer, Tensors

GROUP = 32
FP8_MAX = 448.0


@dataclass(frozen=True)
class Format:
    """config: quantization_config. store: a weight's tensors. weight: what they stand for, by the oracle's code."""

    config: dict[str, Any]
    store: StoreLayer
    weight: Callable[[Tensors], torch.Tensor]


def _fp8(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (weight / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def fp8_tensor() -> Format:
    def store(weight: torch.Tensor) -> Tensors:
        scale = weight.abs().max() / FP8_MAX
        return {"weight": _fp8(weight, scale), "weight_scale": scale.reshape(1), "input_scale": torch.ones(1)}

    return Format({"quant_method": "fp8", "activation_scheme": "static"}, store,
                  lambda parts: parts["weight"].float() * parts["weight_scale"])


def fp8_blocks(scale_dtype: torch.dtype = torch.float32) -> Format:
    """DeepSeek's form: a scale for each block of 128 by 128, the last ones cut short."""
    from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

    def store(weight: torch.Tensor) -> Tensors:
        rows, columns = (-(-size // 128) for size in weight.shape)
        padded = torch.zeros(rows * 128, columns * 128)
        padded[: weight.shape[0], : weight.shape[1]] = weight
        scale = padded.reshape(rows, 128, columns, 128).abs().amax((1, 3)) / FP8_MAX
        scale = scale.log2().ceil().exp2() if scale_dtype == torch.float8_e8m0fnu else scale
        wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[: weight.shape[0], : weight.shape[1]]
        return {"weight": _fp8(weight, wide), "weight_scale_inv": scale.to(scale_dtype)}

    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
    return Format(config, store, lambda parts: _dequantize_fp8_weight(parts["weight"], parts["weight_scale_inv"],
                                                                      [128, 128], torch.float32))


def fbgemm() -> Format:
    def store(weight: torch.Tensor) -> Tensors:
        scale = weight.abs().amax(1, keepdim=True) / FP8_MAX
        return {"weight": _fp8(weight, scale), "weight_scale": scale}

    return Format({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, store,
                  lambda parts: parts["weight"].float() * parts["weight_scale"])


def awq(zero_point: bool = True) -> Format:
    """Random numbers in AutoAWQ's layout; compressed-tensors' converter from it is the oracle."""
    config = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": zero_point}

    def store(weight: torch.Tensor) -> Tensors:
        outputs, inputs = weight.shape
        words = {"qweight": (inputs, outputs // 8), "qzeros": (inputs // GROUP, outputs // 8)}
        parts = {part: torch.randint(-2**31, 2**31, shape, dtype=torch.int64).to(torch.int32)
                 for part, shape in words.items() if zero_point or part == "qweight"}  # fmt: skip
        return parts | {"scales": (torch.rand(inputs // GROUP, outputs) * 0.02).half()}

    def weight(parts: Tensors) -> torch.Tensor:
        converted = AutoAWQConverter(group_size=GROUP, zero_point=zero_point).process(
            {f"layer.{part}": value for part, value in parts.items()})
        scheme = _scheme({"num_bits": 4, "symmetric": not zero_point, "strategy": "group", "group_size": GROUP})
        local = {name.removeprefix("layer."): value.float() if value.dtype == torch.float16 else value
                 for name, value in converted.items()}
        return BaseCompressor.get_value_from_registry("pack-quantized").decompress(local, scheme)["weight"]

    return Format(config, store, weight)


def gptq(bits: int = 4, *, version: int = 1, act_order: bool = False) -> Format:
    """Packed by AutoGPTQ's own loops (QuantLinear.pack of auto_gptq 0.7), from numbers that are known."""
    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": act_order, "sym": False,
              "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
    known: dict[int, torch.Tensor] = {}

    def store(weight: torch.Tensor) -> Tensors:
        outputs, inputs = weight.shape
        numbers = torch.randint(0, 2**bits, (inputs, outputs))
        zeros = torch.randint(1 if version == 1 else 0, 2**bits, (inputs // GROUP, outputs))
        scales = (torch.rand(inputs // GROUP, outputs) * 0.02).half()
        group_of = torch.arange(inputs) // GROUP
        if act_order:
            group_of = group_of[torch.randperm(inputs)]
        stored = zeros - 1 if version == 1 else zeros
        parts = {"qweight": _auto_gptq_pack(numbers, bits), "qzeros": _auto_gptq_pack(stored.T, bits).T.contiguous(),
                 "scales": scales, "g_idx": group_of.to(torch.int32)}
        known[int(parts["qweight"].sum())] = ((numbers - zeros[group_of]) * scales.float()[group_of]).T
        return parts

    return Format(config, store, lambda parts: known[int(parts["qweight"].sum())])


def _auto_gptq_pack(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack the rows of numbers [in, out] into words [in * bits / 32, out], as AutoGPTQ's loops do, 3 bits included."""
    inputs, outputs = numbers.shape
    words = torch.zeros(inputs * bits // 32, outputs, dtype=torch.int64)
    numbers = numbers.to(torch.int64)
    i = row = 0
    while row < words.shape[0]:
        if bits in (2, 4, 8):
            for j in range(i, i + 32 // bits):
                words[row] |= numbers[j] << (bits * (j - i))
            i += 32 // bits
            row += 1
            continue
        for j in range(i, i + 10):
            words[row] |= numbers[j] << (3 * (j - i))
        i += 10
        words[row] |= numbers[i] << 30
        row += 1
        words[row] |= (numbers[i] >> 2) & 1
        i += 1
        for j in range(i, i + 10):
            words[row] |= numbers[j] << (3 * (j - i) + 1)
        i += 10
        words[row] |= numbers[i] << 31
        row += 1
        words[row] |= (numbers[i] >> 1) & 3
        i += 1
        for j in range(i, i + 10):
            words[row] |= numbers[j] << (3 * (j - i) + 2)
        i += 10
        row += 1
    words &= 2**32 - 1
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _scheme(weights: dict[str, Any], activations: dict[str, Any] | None = None) -> QuantizationScheme:
    return QuantizationScheme(targets=["Linear"], weights=weights, input_activations=activations)


def compressed(form: str, weights: dict[str, Any], activations: dict[str, Any] | None = None) -> Format:
    """A compressed-tensors layer, compressed and decompressed by that package."""
    scheme = _scheme(weights, activations)
    compressor = BaseCompressor.get_value_from_registry(form)
    config = {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations}},
    }  # fmt: skip

    def store(weight: torch.Tensor) -> Tensors:
        scale, zero_point = _scales(weight, weights)
        parts = {"weight": weight, "weight_scale": scale} | ({} if zero_point is None
                                                            else {"weight_zero_point": zero_point})
        stored: Tensors = compressor.compress(parts, scheme)
        static = activations is not None and not activations.get("dynamic")
        return stored | ({"input_scale": torch.ones(1)} if static else {})

    def weight(parts: Tensors) -> torch.Tensor:
        local = {name: value for name, value in parts.items() if name != "input_scale"}
        return compressor.decompress(local, scheme)["weight"]

    return Format(config, store, weight)


def _scales(weight: torch.Tensor, settings: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return scales, and zero points when the settings are asymmetric, in the shapes of the strategy."""
    outputs, inputs = weight.shape
    strategy = settings["strategy"]
    if strategy == "block":
        rows, columns = (-(-size // 128) for size in weight.shape)
        return torch.full((rows, columns), float(weight.abs().max()) / FP8_MAX), None
    view = weight.reshape(outputs, -1, settings["group_size"]) if strategy == "group" else weight[:, None]
    view = weight.reshape(1, 1, -1) if strategy == "tensor" else view
    largest, low, high = view.abs().amax(-1), view.amin(-1), view.amax(-1)
    bits = settings["num_bits"]
    if settings.get("type") == "float":
        scale, zero_point = largest / FP8_MAX, None
    elif settings.get("symmetric", True):
        scale, zero_point = largest / (2 ** (bits - 1) - 1), None
    else:
        scale = (high - low) / (2**bits - 1)
        zero_point = (-(2 ** (bits - 1)) - (low / scale).round()).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        zero_point = zero_point.to(torch.int8)
    return (scale.reshape(1), zero_point) if strategy == "tensor" else (scale, zero_point)


# The values that an index stands for. Source: bitsandbytes.functional.get_4bit_type.
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]  # fmt: skip
FP4 = [value / 12 for value in (0, 0.0625, 8, 12, 4, 6, 2, 3, -0, -0.0625, -8, -12, -4, -6, -2, -3)]
BLOCK, NESTED_BLOCK = 64, 256


def bitsandbytes(kind: str, *, nested: bool = False) -> Format:
    """Numbers in QuantState's layout, whose values are those of the published tables."""
    table = torch.tensor(NF4 if kind == "nf4" else FP4)
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
              "bnb_4bit_use_double_quant": nested, "llm_int8_skip_modules": None}
    known: dict[int, torch.Tensor] = {}

    def store(weight: torch.Tensor) -> Tensors:
        indices = torch.randint(0, 16, (weight.numel(),), dtype=torch.uint8)
        absmax = torch.rand(-(-weight.numel() // BLOCK)) * 0.1
        state: dict[str, Any] = {"quant_type": kind, "blocksize": BLOCK, "dtype": "float32",
                                 "shape": list(weight.shape)}  # fmt: skip
        parts = {"weight": (indices[::2] << 4 | indices[1::2]).reshape(-1, 1), "weight.quant_map": table.clone(),
                 "weight.absmax": absmax}
        if nested:
            levels, offset = torch.linspace(-1, 1, 256), 0.05
            codes = torch.randint(0, 256, absmax.shape, dtype=torch.uint8)
            scales = torch.rand(-(-len(absmax) // NESTED_BLOCK)) * 0.01
            absmax = levels[codes.long()] * scales.repeat_interleave(NESTED_BLOCK)[: len(absmax)] + offset
            parts |= {"weight.absmax": codes, "weight.nested_absmax": scales, "weight.nested_quant_map": levels.clone()}
            state |= {"nested_blocksize": NESTED_BLOCK, "nested_dtype": "float32", "nested_offset": offset}
        text = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        values = table[indices.long()] * absmax.repeat_interleave(BLOCK)[: weight.numel()]
        known[int(indices.sum())] = values.reshape(weight.shape)
        return parts | {f"weight.quant_state.bitsandbytes__{kind}": text}

    def weight(parts: Tensors) -> torch.Tensor:
        octets = parts["weight"].int()
        return known[int((octets >> 4).sum() + (octets & 15).sum())]

    return Format(config, store, weight)


def bitsandbytes_int8() -> Format:
    """LLM.int8(): SCB is the largest value of each row, which 127 stands for."""

    def store(weight: torch.Tensor) -> Tensors:
        largest = weight.abs().amax(1)
        return {"weight": (weight * 127 / largest[:, None]).round().to(torch.int8), "SCB": largest,
                "weight_format": torch.tensor(0, dtype=torch.uint8)}

    return Format({"quant_method": "bitsandbytes", "load_in_8bit": True}, store,
                  lambda parts: parts["weight"].float() * parts["SCB"][:, None] / 127)
