"""Configurations with experts and latent attention that can't be run, refused by the name of the value."""

from typing import Any

import pytest

from inference.artifacts.config import decoder_spec_from_config
from inference.artifacts.errors import ArtifactError
from tests.inference.families.cases import BASE, CASES


@pytest.mark.parametrize(("family", "change", "words"), [
    ("mixtral", {"num_experts_per_tok": 5}, "top_k: must be at most the experts"),
    ("mixtral", {"num_local_experts": 0}, "num_local_experts is '0'"),
    ("mixtral", {"num_local_experts": 2**31 - 1}, "num_experts: more than 131,072"),
    ("qwen2_moe", {"mlp_only_layers": "none"}, "mlp_only_layers is not a list of layers"),
    ("qwen2_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is '0'"),
    ("qwen3_moe", {"norm_topk_prob": "yes"}, "norm_topk_prob is 'yes'"),
    ("gpt_oss", {"swiglu_alpha": 1.5}, "swiglu_alpha: only 1.702"),
    ("gpt_oss", {"layer_types": ["sliding_attention"]}, "layer_types is not a list of 3"),
    ("deepseek_v2", {"topk_method": "random"}, "topk_method is 'random'"),
    ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob"),
    ("deepseek_v2", {"num_experts_per_tok": None}, "num_experts_per_tok is missing"),
    ("deepseek_v2", {"kv_lora_rank": -1}, "kv_lora_rank is '-1'"),
    ("deepseek_v3", {"n_group": 3}, "groups: must divide num_experts"),
    ("deepseek_v3", {"topk_group": 5}, "top_groups: must be at most groups"),
    ("deepseek_v3", {"n_group": 8, "topk_group": 8}, "group_score_top"),
    ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ("deepseek_v3", {"num_key_value_heads": 2}, "num_key_value_heads: latent attention"),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
    ("deepseek_v3", {"qk_rope_head_dim": 7}, "even number"),
    ("deepseek_v3", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "mscale": "a",
                                         "mscale_all_dim": 1.0}}, "mscale"),
])  # fmt: skip
def test_an_impossible_value_is_refused_by_name(family: str, change: dict[str, Any], words: str) -> None:
    case = next(case for case in CASES.values() if case["model_type"] == family)
    config = {**BASE, **case}
    decoder_spec_from_config(config, {})
    with pytest.raises(ArtifactError, match=words) as refusal:
        decoder_spec_from_config(config | change, {})
    assert str(refusal.value).startswith("config.json: ")
