"""Tiny GGUF files of any family, written as llama.cpp's converter does: names, fused rows, norms of 1 + weight."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from tests.tiny_models import MERGES, TEMPLATE, VOCAB_SIZE, vocabulary

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "rope_theta": 10_000.0, "long_factor": [1.0, 1.5, 2.0, 4.0],
            "short_factor": [1.0, 1.0, 1.125, 1.25], "original_max_position_embeddings": 64}  # fmt: skip
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "qwen2": lambda: Qwen2Config(**SIZES, num_hidden_layers=2, tie_word_embeddings=False),
    "qwen3": lambda: Qwen3Config(**SIZES, num_hidden_layers=2, head_dim=32, tie_word_embeddings=True),
    "gemma2": lambda: Gemma2Config(**SIZES, num_hidden_layers=3, head_dim=32, query_pre_attn_scalar=32,
                                   sliding_window=16),
    "gemma3": lambda: Gemma3TextConfig(**SIZES, num_hidden_layers=7, head_dim=32, query_pre_attn_scalar=32,
                                       sliding_window=16, rope_parameters={
                                           "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "phi3": lambda: Phi3Config(**SIZES, num_hidden_layers=2, sliding_window=32, rms_norm_eps=1e-6),
    "phi3 with longrope": lambda: Phi3Config(**SIZES, num_hidden_layers=2, rope_parameters=LONGROPE | {
        "partial_rotary_factor": 0.5}, original_max_position_embeddings=64, rms_norm_eps=1e-6),
}  # fmt: skip
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_FOUR_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def tiny_model(kind: str) -> PreTrainedModel:
    """Return a random model whose norms aren't all ones."""
    torch.manual_seed(0)
    config = CONFIGS[kind]()
    model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data += torch.randn_like(weight) * 0.1
    return model


def write_family(path: Path, kind: str) -> PreTrainedModel:
    """Write a model of CONFIGS as GGUF in float32 and return it as transformers holds it."""
    model, architecture = tiny_model(kind), kind.split()[0]
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    _add_family_fields(writer, kind, config)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary())
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        if architecture.startswith("gemma") and "norm" in name:
            values = values + 1
        writer.add_tensor(_gguf_name(name, architecture), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _gguf_name(name: str, architecture: str) -> str:
    norms = _FOUR_NORMS if architecture.startswith("gemma") else _NORMS
    for ours, theirs in (norms | _NAMES).items():
        name = name.replace(f"{ours}.", f"{theirs}.") if f".{ours}." in f".{name}" else name
    return name.replace("model.layers.", "blk.")


def _add_family_fields(writer: gguf.GGUFWriter, kind: str, config: Any) -> None:
    architecture = kind.split()[0]
    rope = config.rope_parameters
    if architecture == "gemma3":
        rope = rope["full_attention"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if architecture in ("qwen3", "gemma2", "gemma3"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture in ("gemma2", "gemma3", "phi3") and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    if architecture == "phi3":
        writer.add_rope_dimension_count(8 if "longrope" in kind else 16)
    if "longrope" in kind:
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
