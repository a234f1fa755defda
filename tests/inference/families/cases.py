"""Tiny random decoders of every native family, made with transformers' own classes: one table for all tests of them."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.tiny_models import VOCAB_SIZE, tiny_tokenizer

BASE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32}
DEEP_YARN = {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
            "short_factor": [1.0, 1.1, 1.2, 1.5], "long_factor": [1.5, 2.0, 3.0, 6.0]}  # fmt: skip
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
          "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
          "n_shared_experts": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1}  # fmt: skip
WINDOW = 24  # tokens; prompts and replies are longer

CASES: dict[str, dict[str, Any]] = {
    "llama with llama3 rope, past the original context": {"model_type": "llama", "rope_parameters": LLAMA3},
    "llama with linear rope": {"model_type": "llama", "rope_parameters": LINEAR, "tie_word_embeddings": True},
    "llama with biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "mistral past its window": {"model_type": "mistral", "sliding_window": WINDOW},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2 with YaRN and late windows": {"model_type": "qwen2", "rope_parameters": YARN, "use_sliding_window": True,
                                         "sliding_window": WINDOW, "max_window_layers": 1},
    "qwen3": {"model_type": "qwen3", "head_dim": 24},
    "phi3": {"model_type": "phi3"},
    "phi3 with longrope, across and past the original context": {
        "model_type": "phi3", "original_max_position_embeddings": 40, "rope_parameters": LONGROPE,
        "sliding_window": 100},
    "gemma2 past its window": {"model_type": "gemma2", "head_dim": 24, "sliding_window": WINDOW,
                               "query_pre_attn_scalar": 20, "attn_logit_softcapping": 5.0,
                               "final_logit_softcapping": 8.0},
    "gemma3 past its window": {"model_type": "gemma3_text", "head_dim": 24, "sliding_window": WINDOW,
                               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                               "query_pre_attn_scalar": 20},
    "olmo2": {"model_type": "olmo2"},
    "granite": {"model_type": "granite", "embedding_multiplier": 3.0, "logits_scaling": 2.0,
                "residual_multiplier": 0.4, "attention_multiplier": 0.2},
    "smollm3": {"model_type": "smollm3", "num_hidden_layers": 4},
    "mixtral past its window": {"model_type": "mixtral", "num_local_experts": 4, "sliding_window": WINDOW},
    "qwen2_moe with a dense layer": {"model_type": "qwen2_moe", "num_experts": 6, "num_experts_per_tok": 3,
                                     "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
                                     "mlp_only_layers": [1]},
    "qwen3_moe": {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True,
                  "moe_intermediate_size": 32, "head_dim": 24},
    "gpt_oss with YaRN past the original context, past its window": {
        "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16,
        "rope_parameters": {**YARN, "truncate": False}, "sliding_window": WINDOW},
    "deepseek_v2 with YaRN past the original context": {
        "model_type": "deepseek_v2", **LATENT, "q_lora_rank": None, "rope_parameters": DEEP_YARN,
        "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0},
    "deepseek_v3 with YaRN past the original context": {
        "model_type": "deepseek_v3", **LATENT, "q_lora_rank": 24, "rope_parameters": DEEP_YARN | {"mscale": 0.7}},
}  # fmt: skip


def write_tiny_decoder(folder: Path, *, model_type: str, **changes: Any) -> Any:
    """Write a complete model of a family with random weights, norms and biases too, and return it as transformers
    holds it."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **(BASE | changes))
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at zero and norms at one
            parameter.add_(torch.randn_like(parameter) * 0.05)
        model.get_input_embeddings().weight.mul_(0.2)  # else a tied head finds the last token again
    model.save_pretrained(folder)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return model
