"""Each family's configuration: defaults are transformers', and tensors are expected by name and shape."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from inference.artifacts.check import check_decoder_weights
from inference.artifacts.config import decoder_spec_from_config
from inference.artifacts.errors import ArtifactError
from inference.artifacts.families import FAMILIES, stored_tensors
from inference.artifacts.source import ModelSource
from tests.inference.families.cases import CASES, write_tiny_decoder
from tests.inference.families.replies import load

REQUIRED = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")

WITHOUT_DEFAULT = {"deepseek_v2": {"num_experts_per_tok": 6}}  # transformers has none, and can't run without


@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_are_those_of_transformers(family: str) -> None:
    config = AutoConfig.for_model(family, **WITHOUT_DEFAULT.get(family, {}))
    full = json.loads(config.to_json_string(use_diff=False))
    least = {key: full[key] for key in REQUIRED} | WITHOUT_DEFAULT.get(family, {})
    ids = {key: full.get(key) for key in ("bos_token_id", "eos_token_id")}  # never assumed: a wrong one ends replies
    assert decoder_spec_from_config(least | ids, {}) == decoder_spec_from_config(full, {})


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_holds_just_the_expected_tensors(name: str, tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **CASES[name])
    source = ModelSource.open(tmp_path)
    expected = {name: stored.shape for name, stored in stored_tensors(source.decoder_spec()).items()}
    assert {name: info.shape for name, info in source.tensors.items()} == expected


@pytest.mark.parametrize("family", ["gemma3_text", "phi3"])
def test_missing_extra_misnamed_and_misshapen_tensors_are_refused_by_name_and_shape(
    family: str, tmp_path: Path
) -> None:
    write_tiny_decoder(tmp_path, model_type=family)
    weights = load_file(tmp_path / "model.safetensors")
    key = "model.layers.1.self_attn.o_proj.weight"
    shape = list(weights[key].shape)

    def refusal(changed: dict[str, Any]) -> str:
        save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
        source = ModelSource.open(tmp_path)
        with pytest.raises(ArtifactError) as caught:
            check_decoder_weights(source, source.decoder_spec())
        with pytest.raises(ArtifactError) as again:  # the engine says the same
            load(tmp_path)
        assert str(again.value) == str(caught.value)
        return str(caught.value)

    without = {name: value for name, value in weights.items() if name != key}
    assert refusal(without) == f"weights: tensor '{key}' is missing"
    assert refusal(without | {key.replace("o_proj", "out_proj"): weights[key]}) == (
        f"weights: tensor '{key}' is missing")
    assert refusal(weights | {key: weights[key][:-1].contiguous()}) == (
        f"weights: tensor '{key}' has the shape {[shape[0] - 1, shape[1]]}, expected {shape}")
    extra = key.replace("o_proj", "k_scale")
    assert f"'{extra}' is not one of a {family} decoder with 3 layers" in refusal(weights | {extra: weights[key] + 0})


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_tied_model_loads_with_and_without_a_stored_head(family: str, tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, model_type=family, tie_word_embeddings=True)
    weights = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in weights
    without = load(tmp_path)
    copy = weights["model.embed_tokens.weight"].clone()
    save_file(weights | {"lm_head.weight": copy}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load(tmp_path).weights_bytes == without.weights_bytes


@pytest.mark.parametrize(("family", "change", "words"), [
    ("gemma2", {"use_bidirectional_attention": True}, "sees only what came before"),
    ("gemma2", {"sliding_window": 0}, "sliding_window is '0'"),
    ("gemma3_text", {"layer_types": ["sliding_attention"]}, "layer_types is not a list of 3"),
    ("gemma3_text", {"layer_types": ["linear_attention"] * 3}, "layer_types is not a list of 3"),
    ("gemma3_text", {"rope_parameters": {"full_attention": 1}}, "rope settings"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers is not a list of at least 3"),
    ("smollm3", {"no_rope_layers": {"a": 1}}, "no_rope_layers is not a list"),
    ("granite", {"logits_scaling": 0}, "logits_scaling is '0'"),
    ("granite", {"residual_multiplier": "much"}, "residual_multiplier is 'much'"),
    ("phi3", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8,
                                  "long_factor": [0.0] * 8}}, "long_factor is not a list of 8 positive numbers"),
    ("phi3", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 1.5}}, "partial: must be at most 1"),
    ("qwen3", {"head_dim": 15}, "head_dim is 15"),
])  # fmt: skip
def test_an_impossible_value_is_refused_by_name(
    family: str, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_tiny_decoder(tmp_path, model_type=family)
    config = json.loads((tmp_path / "config.json").read_text()) | change
    with pytest.raises(ArtifactError, match=words) as refusal:
        decoder_spec_from_config(config, {})
    assert str(refusal.value).startswith("config.json: ")
