"""Configurations written out from published architecture values, with the figures that their authors give.

Sources, by key: llama-3.1-70b: arXiv 2407.21783, table 3, and 70.6B in its model card. qwen2.5-72b: arXiv 2412.15115
and its model card (72.7B). deepseek-v3: arXiv 2412.19437, section 4.2 (671B, 37B activated, 61 layers, kv compression
512, rope 64); 70,272 bytes a token: arXiv 2505.09343, table 1. mixtral-8x7b: arXiv 2401.04088, table 1, and
mistral.ai/news/mixtral-of-experts (46.7B, 12.9B). qwen3-30b-a3b: arXiv 2505.09388 and its model card (30.5B, 3.3B).
"""

from typing import Any

LLAMA_70B: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 128_256, "hidden_size": 8192, "intermediate_size": 28_672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 131_072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}
QWEN25_72B: dict[str, Any] = {
    "model_type": "qwen2", "vocab_size": 152_064, "hidden_size": 8192, "intermediate_size": 29_568,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 32_768,
    "use_sliding_window": False, "sliding_window": 131_072, "max_window_layers": 70, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "vocab_size": 129_280, "hidden_size": 7168, "intermediate_size": 18_432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "num_attention_heads": 128,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163_840, "tie_word_embeddings": False,
    "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
}
MIXTRAL_8X7B: dict[str, Any] = {
    "model_type": "mixtral", "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "num_experts_per_tok": 2, "max_position_embeddings": 32_768, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3_30B_A3B: dict[str, Any] = {
    "model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
    "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "max_position_embeddings": 40_960, "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16",
}
# gpt-oss: arXiv 2508.10925, table 1 (116.83B total, 5.13B active; 20.91B, 3.61B); window 128 in every second layer.
GPT_OSS_20B: dict[str, Any] = {
    "model_type": "gpt_oss", "vocab_size": 201_088, "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "max_position_embeddings": 131_072,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "attention_bias": True, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
# Qwen3-Next: its model card (80B, 3B activated, 48 layers, of which every fourth attends).
QWEN3_NEXT_80B: dict[str, Any] = {
    "model_type": "qwen3_next", "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 5120,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_hidden_layers": 48,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "num_experts": 512,
    "num_experts_per_tok": 10, "decoder_sparse_step": 1, "full_attention_interval": 4, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "max_position_embeddings": 262_144, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
