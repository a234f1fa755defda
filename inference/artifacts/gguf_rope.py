"""Derives a configuration's rotary settings from a GGUF file's metadata and the divisors that it stores as tensors."""

from typing import Any

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile, dequantise
from inference.artifacts.names import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS

# What every published llama-3 rope scaling shares; GGUF stores only the resulting divisors.
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_ORIGINAL = 1.0, 4.0, 8192
GEMMA3_LOCAL_THETA = 10_000.0  # not in the file: llama.cpp knows it


def rope_settings(file: GgufFile, head_dim: int, *, may_be_partial: bool) -> dict[str, Any]:
    """Return rope_parameters as transformers 5 has them, with what goes beside them. Raises ArtifactError.

    may_be_partial: the family can rotate a part of each head.
    """
    prefix, metadata = file.metadata["general.architecture"], file.metadata
    rotary = metadata.get(f"{prefix}.rope.dimension_count", head_dim)
    if not isinstance(rotary, int) or not 0 < rotary <= head_dim or (rotary != head_dim and not may_be_partial):
        raise ArtifactError(file.path.name, f"rotates {rotary} of {head_dim} dimensions of a head, which is not "
                                            "supported")
    parameters = _parameters(file, prefix, rotary)
    if prefix == "gemma3":
        local = {"rope_type": "default", "rope_theta": GEMMA3_LOCAL_THETA}
        return {"rope_parameters": {"full_attention": parameters, "sliding_attention": local}}
    if rotary != head_dim:
        parameters["partial_rotary_factor"] = rotary / head_dim
    settings: dict[str, Any] = {"rope_parameters": parameters}
    if "original_max_position_embeddings" in parameters and parameters["rope_type"] == "longrope":
        settings["original_max_position_embeddings"] = parameters["original_max_position_embeddings"]
    return settings


def _parameters(file: GgufFile, prefix: str, rotary: int) -> dict[str, Any]:
    metadata = file.metadata
    theta = metadata.get(f"{prefix}.rope.freq_base", 1_000_000.0 if prefix == "gemma3" else 10_000.0)
    kind = metadata.get(f"{prefix}.rope.scaling.type", "none")
    if ROPE_FACTORS in file.tensors:
        return _llama3_parameters(file, rotary, theta)
    if LONG_FACTORS in file.tensors or SHORT_FACTORS in file.tensors:
        return _longrope_parameters(file, prefix, rotary, theta)
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": _field(file, f"{prefix}.rope.scaling.factor")}
    if kind == "yarn":
        return {"rope_type": "yarn", "rope_theta": theta, "factor": _field(file, f"{prefix}.rope.scaling.factor"),
                "original_max_position_embeddings": _field(file, f"{prefix}.rope.scaling.original_context_length")}
    if kind != "none":
        raise ArtifactError(file.path.name, f"the rope scaling {str(kind)[:40]!r} is not supported")
    return {"rope_type": "default", "rope_theta": theta}


def _field(file: GgufFile, key: str) -> Any:
    if key not in file.metadata:
        raise ArtifactError(file.path.name, f"lacks the metadata field {key}")
    return file.metadata[key]


def _stored_factors(file: GgufFile, name: str, pairs: int) -> npt.NDArray[np.float32]:
    tensor = file.tensors.get(name)
    if tensor is None or tensor.shape != (pairs,):
        raise ArtifactError(file.path.name, f"lacks tensor {name!r}, or it does not have the shape [{pairs}]")
    return dequantise(file.read_raw(name), tensor.type, tensor.shape)


def _longrope_parameters(file: GgufFile, prefix: str, rotary: int, theta: float) -> dict[str, Any]:
    long, short = (_stored_factors(file, name, rotary // 2).tolist() for name in (LONG_FACTORS, SHORT_FACTORS))
    parameters = {"rope_type": "longrope", "rope_theta": theta, "long_factor": long, "short_factor": short,
                  "original_max_position_embeddings": _field(file, f"{prefix}.rope.scaling.original_context_length")}
    attention = file.metadata.get(f"{prefix}.rope.scaling.attn_factor")
    return parameters if attention is None else parameters | {"attention_factor": attention}


def _llama3_parameters(file: GgufFile, rotary: int, theta: float) -> dict[str, Any]:
    """Find the llama-3 scaling whose divisors the file stores; raise ArtifactError when they are of another kind."""
    tensor = file.tensors[ROPE_FACTORS]
    divisors = dequantise(file.read_raw(ROPE_FACTORS), tensor.type, tensor.shape)
    factor = float(divisors.max(initial=1.0))
    if divisors.shape != (rotary // 2,) or not np.allclose(divisors, llama3_divisors(rotary, theta, factor), rtol=1e-3):
        raise ArtifactError(file.path.name, f"{ROPE_FACTORS} does not hold a llama-3 rope scaling")
    return {"rope_type": "llama3", "rope_theta": theta, "factor": factor, "low_freq_factor": LLAMA3_LOW,
            "high_freq_factor": LLAMA3_HIGH, "original_max_position_embeddings": LLAMA3_ORIGINAL}


def llama3_divisors(head_dim: int, theta: float, factor: float) -> npt.NDArray[np.float64]:
    """Return what llama-3 scaling divides each rope frequency by. [head_dim / 2]

    Source: transformers' _compute_llama3_parameters; llama.cpp's converter stores the same.
    """
    wavelengths = 2 * np.pi * theta ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    smooth = (LLAMA3_ORIGINAL / wavelengths - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)
    between = 1 / ((1 - smooth) / factor + smooth)
    low, high = LLAMA3_ORIGINAL / LLAMA3_LOW, LLAMA3_ORIGINAL / LLAMA3_HIGH
    return np.where(wavelengths < high, 1.0, np.where(wavelengths > low, factor, between))
