"""Specs read from configurations, against transformers' own reading and its rope frequencies."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from inference.artifacts.config import decoder_spec_from_config
from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf_rope import llama3_divisors
from inference.artifacts.source import ModelSource
from inference.decoder_spec import RopeSpec
from tests.tiny_models import tiny_config, write_tiny_gguf

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}


def saved(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Return a config.json as transformers writes it."""
    tiny_config(**changes).save_pretrained(tmp_path)
    config: dict[str, Any] = json.loads((tmp_path / "config.json").read_text())
    return config


def test_reads_what_transformers_saves(tmp_path: Path) -> None:
    spec = decoder_spec_from_config(saved(tmp_path, rms_norm_eps=1e-5, attention_bias=True), {})
    assert (spec.num_layers, spec.head_dim, spec.rms_norm_eps, spec.attention_bias) == (2, 16, 1e-5, True)
    assert spec.rope == RopeSpec(theta=10_000.0)


def test_defaults_are_those_of_transformers() -> None:
    config = {"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4,
              "num_hidden_layers": 1, "intermediate_size": 8}
    spec, theirs = decoder_spec_from_config(config, {}), LlamaConfig(**config)
    assert (spec.num_kv_heads, spec.head_dim, spec.max_position, spec.rms_norm_eps, spec.tie_word_embeddings) == (
        theirs.num_key_value_heads, theirs.head_dim, theirs.max_position_embeddings, theirs.rms_norm_eps,
        theirs.tie_word_embeddings)  # fmt: skip
    assert spec.rope.theta == theirs.rope_parameters["rope_theta"]


@pytest.mark.parametrize("style", ["rope_parameters", "rope_scaling"])
def test_reads_rope_scaling_in_the_new_and_the_old_layout(style: str) -> None:
    base = tiny_config().to_dict()
    del base["rope_parameters"]
    if style == "rope_parameters":
        config = base | {"rope_parameters": LLAMA3 | {"rope_theta": 500_000.0}}
    else:
        config = base | {"rope_theta": 500_000.0, "rope_scaling": LLAMA3}
    assert decoder_spec_from_config(config, {}).rope == RopeSpec(
        theta=500_000.0, kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position=8192)
    linear = base | {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert decoder_spec_from_config(linear, {}).rope == RopeSpec(theta=1e4, kind="linear", factor=2.0)


def test_end_ids_come_from_the_generation_config_first() -> None:
    config = tiny_config(eos_token_id=2).to_dict()
    assert decoder_spec_from_config(config, {}).eos_token_ids == (2,)
    assert decoder_spec_from_config(config, {"eos_token_id": [0, 2, 0]}).eos_token_ids == (0, 2)
    assert decoder_spec_from_config(config | {"eos_token_id": None}, {}).eos_token_ids == ()


@pytest.mark.parametrize(("change", "words"), [
    ({"model_type": "mamba"}, "the architecture 'mamba' is not supported"),
    ({"model_type": None}, "the architecture 'None' is not supported"),
    ({"hidden_size": -64}, "hidden_size is '-64'"),
    ({"hidden_size": "64"}, "hidden_size is '64'"),
    ({"hidden_size": 2**70}, "hidden_size is"),
    ({"hidden_size": 64.0}, "hidden_size is '64.0'"),
    ({"num_hidden_layers": True}, "num_hidden_layers is 'True'"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is"),
    ({"vocab_size": None}, "vocab_size is missing"),
    ({"num_key_value_heads": 3}, "num_heads: must be a multiple of num_kv_heads"),
    ({"head_dim": 15}, "head_dim is 15"),
    ({"rms_norm_eps": 0}, "rms_norm_eps is '0'"),
    ({"rms_norm_eps": 1e400}, "rms_norm_eps is 'inf'"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
    ({"eos_token_id": 10**6}, "eos_token_id is '1000000'"),
    ({"eos_token_id": [-1]}, "eos_token_id is '-1'"),
    ({"auto_map": {"AutoModel": "x.Y"}}, "never run"),
    ({"rope_parameters": "llama3"}, "rope settings"),
    ({"rope_parameters": {"rope_type": "axial", "rope_theta": 1e4}}, "rope type 'axial'"),
    ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0, "short_factor": [1.0]}},
     "short_factor is not a list of 8 positive numbers"),
    ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "factor is missing"),
    ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"rope_parameters": LLAMA3 | {"rope_theta": -1}}, "rope_theta is '-1'"),
    ({"rope_parameters": LLAMA3 | {"rope_theta": 1e4, "high_freq_factor": 1.0}}, "not above low_freq_factor"),
])  # fmt: skip
def test_a_configuration_that_can_not_be_run_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ArtifactError, match=words) as refusal:
        decoder_spec_from_config(tiny_config().to_dict() | change, {})
    assert str(refusal.value).startswith("config.json: ")


def llama3_factors(theta: float, factor: float) -> np.ndarray:
    """Return what llama-3 scaling divides the frequencies of 16-wide heads by, from transformers' own functions."""
    config = tiny_config(rope_parameters=LLAMA3 | {"factor": factor, "rope_theta": theta})
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1 / theta ** (np.arange(0, 16, 2) / 16)
    return np.asarray(plain / scaled.numpy(), np.float32)


def test_llama3_divisors_are_those_of_transformers() -> None:
    assert np.allclose(llama3_divisors(16, 500_000.0, 32.0), llama3_factors(500_000.0, 32.0), rtol=1e-5)


def test_llama3_scaling_is_recognised_from_the_factors_in_a_gguf_file(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", metadata={"llama.rope.freq_base": 500_000.0},
                    extra_tensors={"rope_freqs.weight": llama3_factors(500_000.0, 8.0)})
    rope = ModelSource.open(tmp_path / "m.gguf").decoder_spec().rope
    assert rope == RopeSpec(theta=500_000.0, kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                            original_max_position=8192)


def test_other_factors_in_a_gguf_file_are_refused(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", extra_tensors={"rope_freqs.weight": np.linspace(1, 3, 8, dtype=np.float32)})
    with pytest.raises(ArtifactError, match="does not hold a llama-3 rope scaling"):
        ModelSource.open(tmp_path / "m.gguf")


def test_linear_scaling_in_a_gguf_file(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", metadata={"llama.rope.scaling.type": "linear",
                                                   "llama.rope.scaling.factor": 4.0})
    assert ModelSource.open(tmp_path / "m.gguf").decoder_spec().rope == RopeSpec(kind="linear", factor=4.0)
