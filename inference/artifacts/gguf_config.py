"""Derives the config.json and generation_config.json that a llama-shaped GGUF file would have had."""

from typing import Any

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile, dequantise
from inference.artifacts.names import ROPE_FACTORS

# What every published llama-3 rope scaling shares; GGUF stores only the resulting divisors.
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_ORIGINAL = 1.0, 4.0, 8192


def config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """Return a Hugging Face style llama configuration. Raises ArtifactError for other architectures."""
    name, metadata = file.path.name, file.metadata
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ArtifactError(name, f"the architecture {str(architecture)[:60]!r} is not supported (known: llama)")
    if metadata.get("llama.expert_count"):
        raise ArtifactError(name, "llama.expert_count: mixtures of experts are not supported")
    if "token_embd.weight" not in file.tensors:
        raise ArtifactError(name, "lacks tensor 'token_embd.weight'")
    heads = _field(file, "llama.attention.head_count")
    hidden = _field(file, "llama.embedding_length")
    if not isinstance(heads, int) or not isinstance(hidden, int) or heads < 1:
        raise ArtifactError(name, "llama.attention.head_count and llama.embedding_length are not single whole numbers")
    head_dim = metadata.get("llama.attention.key_length", hidden // heads)
    rotary = metadata.get("llama.rope.dimension_count", head_dim)
    if rotary != head_dim:
        raise ArtifactError(name, f"rotates {rotary} of {head_dim} dimensions of a head, which is not supported")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden,
        "intermediate_size": _field(file, "llama.feed_forward_length"),
        "num_hidden_layers": _field(file, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": _field(file, "llama.context_length"),
        "rms_norm_eps": _field(file, "llama.attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope_parameters(file, head_dim),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        **generation_config_from_gguf(file),
    }


def generation_config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """Return the special ids that steer generation; every end id that the file declares is one (eos, eot, eom)."""
    metadata = file.metadata
    ends = [metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    ids = list(dict.fromkeys(end for end in ends if end is not None))
    result = {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": ids[0] if len(ids) == 1 else ids or None,
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }
    return {key: value for key, value in result.items() if value is not None}


def _field(file: GgufFile, key: str) -> Any:
    if key not in file.metadata:
        raise ArtifactError(file.path.name, f"lacks the metadata field {key}")
    return file.metadata[key]


def _rope_parameters(file: GgufFile, head_dim: int) -> dict[str, Any]:
    metadata, name = file.metadata, file.path.name
    theta = metadata.get("llama.rope.freq_base", 10_000.0)
    kind = metadata.get("llama.rope.scaling.type", "none")
    if ROPE_FACTORS in file.tensors:
        return _llama3_parameters(file, head_dim, theta)
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": _field(file, "llama.rope.scaling.factor")}
    if kind != "none":
        raise ArtifactError(name, f"the rope scaling {str(kind)[:40]!r} is not supported")
    return {"rope_type": "default", "rope_theta": theta}


def _llama3_parameters(file: GgufFile, head_dim: int, theta: float) -> dict[str, Any]:
    """Find the llama-3 scaling whose divisors the file stores; raise ArtifactError when they are of another kind."""
    tensor = file.tensors[ROPE_FACTORS]
    divisors = dequantise(file.read_raw(ROPE_FACTORS), tensor.type, tensor.shape)
    factor = float(divisors.max(initial=1.0))
    if divisors.shape != (head_dim // 2,) or not np.allclose(divisors, llama3_divisors(head_dim, theta, factor),
                                                             rtol=1e-3):
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
