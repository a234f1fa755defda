"""Every family that the planner names has as many parameters as transformers' own model of the same configuration."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from inference.planner import decoders, encoders, recurrent, shape_from_config

SMALL: dict[str, Any] = {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
                         "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 128}
WIDE_HEADS = {"head_dim": 32}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 2,
          "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2}

CASES: dict[str, list[dict[str, Any]]] = {
    "llama": [{}, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}],
    "mistral": [WIDE_HEADS], "qwen2": [{}], "qwen3": [WIDE_HEADS], "smollm3": [{"pad_token_id": 0}],
    "mixtral": [{"num_local_experts": 4}],
    "qwen2_moe": [EXPERTS | {"shared_expert_intermediate_size": 40}, EXPERTS | {"mlp_only_layers": [1]}],
    "qwen3_moe": [EXPERTS | WIDE_HEADS, EXPERTS | WIDE_HEADS | {"decoder_sparse_step": 2}],
    "olmoe": [{"num_experts": 8, "num_experts_per_tok": 2}],
    "phi3": [{"pad_token_id": 0}], "gpt_oss": [{"num_local_experts": 4, "head_dim": 16}],
    "gemma": [WIDE_HEADS], "gemma2": [WIDE_HEADS], "gemma3_text": [WIDE_HEADS], "olmo": [{}], "olmo2": [{}],
    "glm": [{"head_dim": 16, "pad_token_id": 0}], "glm4": [{"head_dim": 16, "pad_token_id": 0}],
    "glm4_moe": [ROUTED | {"head_dim": 16}, ROUTED | {"head_dim": 16, "use_qk_norm": True, "attention_bias": True}],
    "granite": [{}], "granitemoe": [{"num_local_experts": 4}], "cohere": [{}], "cohere2": [{}],
    "starcoder2": [{}, {"use_bias": False}], "stablelm": [{}], "phi": [{}], "gpt_neox": [{"num_key_value_heads": 4}],
    "gpt2": [{"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128, "n_inner": 96,
              "num_key_value_heads": 4}], "exaone4": [{"sliding_window": 64}],
    "seed_oss": [{"head_dim": 16}], "ernie4_5": [{"head_dim": 16}], "hunyuan_v1_dense": [{"head_dim": 16}],
    "deepseek_v2": [ROUTED | LATENT, ROUTED | LATENT | {"q_lora_rank": None}],
    "deepseek_v3": [ROUTED | LATENT],
    "qwen3_next": [EXPERTS | {"head_dim": 16, "shared_expert_intermediate_size": 40, "linear_num_key_heads": 2,
                              "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}],
    "mamba": [{}], "falcon_mamba": [{}],
    "mamba2": [{"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1}],
    "jamba": [{"num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "pad_token_id": 0}],
    "bamba": [MAMBA2 | {"attn_layer_indices": [1]}], "falcon_h1": [MAMBA2 | {"mamba_d_ssm": 128, "head_dim": 16}],
    "granitemoehybrid": [MAMBA2 | {"num_local_experts": 4, "layers_block_type": ["mamba", "attention"] * 2}],
    "bert": [{}], "roberta": [{}], "xlm-roberta": [{}], "camembert": [{}], "mpnet": [{}],
    "distilbert": [{"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96}], "electra": [{"embedding_size": 32}],
    "modernbert": [{"pad_token_id": 0}],
}  # fmt: skip


def oracle(family: str, config: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the parameters of transformers' model and its whole configuration, defaults included."""
    auto = AutoConfig.for_model(family, **config)
    make = AutoModel if family in encoders.FAMILIES else AutoModelForCausalLM
    with torch.device("meta"):
        model = make.from_config(auto)
    return model.num_parameters(), auto.to_dict()


@pytest.mark.parametrize("family", CASES)
def test_parameters_match_transformers(family: str) -> None:
    for changes in CASES[family]:
        expected, config = oracle(family, SMALL | changes)
        shape = shape_from_config(config)
        assert shape.total == expected, changes
        assert not shape.notes


def test_every_family_has_a_case() -> None:
    known = {*decoders.FAMILIES, *recurrent.FAMILIES, *encoders.FAMILIES}
    assert known - set(CASES) <= {"ministral", "kimi_k2", "minicpm3", "phimoe", "olmo3"}
