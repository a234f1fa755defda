"""Models without a native family: greedy replies through transformers' own code equal its generate; the rest is
refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from inference.artifacts.errors import ArtifactError
from inference.artifacts.fallback import CAUSAL, REFUSED, fallback_spec_from_config
from inference.artifacts.families import FAMILIES
from inference.models.fallback import CachedModel, check_continues, load_model
from tests.inference.families.cases import WINDOW, write_tiny_decoder
from tests.inference.families.replies import engine_replies, load, near_ties, prompts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

PAGED: dict[str, dict[str, Any]] = {
    "gpt2": {}, "gpt_neox": {}, "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64}, "cohere": {}, "phi": {}, "olmo": {},
    "cohere2": {"sliding_window": WINDOW, "head_dim": 16}, "starcoder2": {"sliding_window": WINDOW},
    "glm": {"head_dim": 16}, "exaone4": {"sliding_window": WINDOW}, "nemotron": {}, "gptj": {"rotary_dim": 8},
}  # fmt: skip
OWN_CACHE: dict[str, dict[str, Any]] = {
    "falcon": {}, "stablelm": {}, "bloom": {"n_head": 4, "n_layer": 3}, "mamba": {"state_size": 8},
    "qwen3_next": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                   "shared_expert_intermediate_size": 32, "head_dim": 16, "num_hidden_layers": 4,
                   "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
                   "linear_value_head_dim": 16},
}  # fmt: skip


@pytest.mark.parametrize("family", [*PAGED, *OWN_CACHE])
def test_greedy_replies_equal_generate(family: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = write_tiny_decoder(tmp_path, model_type=family, **(PAGED | OWN_CACHE)[family])
    engine, asked = load(tmp_path), prompts(model.config.vocab_size)
    replies, cached = engine_replies(engine, asked)
    assert any("transformers' own code" in note for note in engine.notes)
    assert cached == (48 if family in PAGED else 0)
    assert len({token for reply in replies for token in reply}) > 10  # not a comparison of one token
    ties = near_ties(model, asked, replies)
    print(f"\n{family}: {len(asked) - ties} of {len(asked)} replies equal, {ties} differ first at a near-tie")


def test_every_causal_model_that_transformers_lists_runs_or_has_a_reason() -> None:
    assert CAUSAL | set(REFUSED) == set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert not CAUSAL & set(REFUSED)
    assert set(FAMILIES) <= CAUSAL


@pytest.mark.parametrize(("change", "words"), [
    ({"model_type": "bert"}, "'bert' is an encoder"),
    ({"model_type": "bart"}, "'bart' is an encoder with a decoder"),
    ({"model_type": "gemma3"}, "'gemma3' reads or writes more than text"),
    ({"model_type": "rwkv"}, "'rwkv' keeps its state"),
    ({"model_type": "my_own"}, "'my_own' is not supported"),
    ({"model_type": None}, "'None' is not supported"),
    ({"auto_map": {"AutoModelForCausalLM": "m.M"}}, "never run"),
    ({"quantization_config": {"quant_method": "gptq"}}, "plain weights only"),
    ({"vocab_size": None}, "vocab_size is missing"),
    ({"n_positions": "many"}, "n_positions is 'many'"),
    ({"eos_token_id": 10**6}, "eos_token_id is '1000000'"),
])  # fmt: skip
def test_what_can_not_run_is_refused_with_the_reason(change: dict[str, Any], words: str) -> None:
    config = {"model_type": "gpt2", "vocab_size": 100, "n_positions": 64}
    assert fallback_spec_from_config(config, {}).max_position == 64
    with pytest.raises(ArtifactError, match=words):
        fallback_spec_from_config(config | change, {})


def test_missing_extra_and_misshapen_tensors_are_refused_by_name(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, model_type="gpt2")
    weights = load_file(tmp_path / "model.safetensors")
    key = "transformer.h.1.mlp.c_fc.weight"

    def refusal(changed: dict[str, torch.Tensor]) -> str:
        save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ArtifactError) as caught:
            load(tmp_path)
        return str(caught.value)

    assert refusal({name: value for name, value in weights.items() if name != key}).endswith(f"'{key}' is missing")
    assert "'transformer.extra' is not one of this architecture" in refusal(weights | {"transformer.extra":
                                                                                       weights[key] + 0})
    rows, columns = weights[key].shape
    assert refusal(weights | {key: weights[key][:, :-1].contiguous()}).endswith(
        f"'{key}' has the shape [{rows}, {columns - 1}], expected [{rows}, {columns}]")


def test_a_model_whose_state_lies_in_its_modules_is_refused(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, model_type="recurrent_gemma", lru_width=64, attention_window_size=WINDOW, head_dim=16)
    with pytest.raises(ArtifactError, match="keeps the state of a text in its modules"):  # at registration
        load(tmp_path)
    with pytest.raises(ArtifactError, match="'recurrent_gemma'"), torch.inference_mode():  # and one not known of yet
        check_continues(CachedModel(load_model(tmp_path)))


def test_no_code_of_a_model_is_run(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, model_type="gpt2")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ArtifactError, match="never run"):
        load(tmp_path)
