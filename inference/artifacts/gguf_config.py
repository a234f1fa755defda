"""Derives the config.json and generation_config.json that a GGUF file's model would have had."""

from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile
from inference.artifacts.gguf_rope import rope_settings
from inference.artifacts.names import ARCHITECTURES, GgufArchitecture

GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}  # these alone scale queries by hidden size over heads
CLASS_NAMES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma2": "Gemma2", "gemma3_text": "Gemma3",
               "phi3": "Phi3"}  # fmt: skip


def architecture_of(file: GgufFile) -> GgufArchitecture:
    """Return how the file's family is stored. Raises ArtifactError for another."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ArtifactError(file.path.name, f"the architecture {str(name)[:60]!r} is not supported (known: "
                                            f"{', '.join(ARCHITECTURES)})")
    if file.metadata.get(f"{name}.expert_count"):
        raise ArtifactError(file.path.name, f"{name}.expert_count: mixtures of experts are not supported in GGUF")
    return ARCHITECTURES[name]


def config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """Return a Hugging Face style configuration. Raises ArtifactError for architectures that aren't known."""
    model_type = architecture_of(file).model_type
    prefix, metadata = file.metadata["general.architecture"], file.metadata
    if "token_embd.weight" not in file.tensors:
        raise ArtifactError(file.path.name, "lacks tensor 'token_embd.weight'")
    heads, hidden = _field(file, "attention.head_count"), _field(file, "embedding_length")
    if not isinstance(heads, int) or not isinstance(hidden, int) or heads < 1:
        raise ArtifactError(file.path.name, f"{prefix}.attention.head_count and {prefix}.embedding_length are not "
                                            "single whole numbers")
    kv_heads = metadata.get(f"{prefix}.attention.head_count_kv", heads)
    head_dim = metadata.get(f"{prefix}.attention.key_length", hidden // heads)
    if not all(isinstance(size, int) and size > 0 for size in (kv_heads, head_dim)):
        raise ArtifactError(file.path.name, f"{prefix}.attention.head_count_kv and {prefix}.attention.key_length are "
                                            "not single positive whole numbers")
    return {
        "architectures": [f"{CLASS_NAMES[model_type]}ForCausalLM"],
        "model_type": model_type,
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden,
        "intermediate_size": _field(file, "feed_forward_length"),
        "num_hidden_layers": _field(file, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": _field(file, "context_length"),
        "rms_norm_eps": _field(file, "attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **rope_settings(file, head_dim, may_be_partial=model_type == "phi3"),
        **_own_settings(file, prefix, hidden, heads, head_dim),
        **generation_config_from_gguf(file),
    }


def _own_settings(file: GgufFile, prefix: str, hidden: int, heads: int, head_dim: int) -> dict[str, Any]:
    """Return what only this family's configuration holds."""
    metadata = file.metadata
    if prefix == "llama":
        return {"hidden_act": "silu", "attention_bias": "blk.0.attn_q.bias" in file.tensors,
                "mlp_bias": "blk.0.ffn_up.bias" in file.tensors}
    window = metadata.get(f"{prefix}.attention.sliding_window")
    if prefix in GEMMA_27B_LAYERS:
        big = metadata.get(f"{prefix}.block_count") == GEMMA_27B_LAYERS[prefix]
        settings = {"query_pre_attn_scalar": hidden // heads if big else head_dim,
                    "hidden_activation": "gelu_pytorch_tanh",
                    "attn_logit_softcapping": metadata.get(f"{prefix}.attn_logit_softcapping"),
                    "final_logit_softcapping": metadata.get(f"{prefix}.final_logit_softcapping")}
        return settings if window is None else settings | {"sliding_window": window}
    return {"hidden_act": "silu"} | ({"sliding_window": window} if prefix == "phi3" else {})


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
    key = f"{file.metadata['general.architecture']}.{key}"
    if key not in file.metadata:
        raise ArtifactError(file.path.name, f"lacks the metadata field {key}")
    return file.metadata[key]
