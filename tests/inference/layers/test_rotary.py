"""Rotary frequencies against transformers' own functions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

from inference.decoder_spec import RopeSpec
from inference.layers.rotary import rotary_tables

CASES: dict[str, tuple[RopeSpec, dict[str, Any]]] = {
    "default": (RopeSpec(theta=100_000.0), {"rope_type": "default", "rope_theta": 100_000.0}),
    "linear": (
        RopeSpec(kind="linear", factor=4.0),
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
    ),
    "yarn": (
        RopeSpec(kind="yarn", theta=10_000.0, factor=8.0, original_max_position=2048,
                 attention_factor=0.1 * math.log(8.0) + 1),
        {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 2048},
    ),
    "yarn, untruncated, with other turns": (
        RopeSpec(kind="yarn", theta=150_000.0, factor=32.0, original_max_position=4096, beta_fast=16.0, beta_slow=2.0,
                 truncate=False, attention_factor=1.25),
        {"rope_type": "yarn", "rope_theta": 150_000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
         "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 1.25},
    ),
    "dynamic, within the context": (
        RopeSpec(theta=10_000.0), {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0},
    ),
    "llama3": (
        RopeSpec(kind="llama3", theta=500_000.0, factor=8.0, original_max_position=8192),
        {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_tables_equal_transformers(name: str) -> None:
    spec, parameters = CASES[name]
    config = LlamaConfig(hidden_size=128, num_attention_heads=2, head_dim=64, rope_parameters=parameters,
                         max_position_embeddings=16_384)  # fmt: skip
    cosine, sine = rotary_tables(spec, 64, 2000)
    positions = torch.arange(2000)[None]
    wanted = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
    np.testing.assert_allclose(cosine, wanted[0][0, :, :32].numpy(), atol=3e-4)
    np.testing.assert_allclose(sine, wanted[1][0, :, :32].numpy(), atol=3e-4)


@pytest.mark.parametrize("long", [False, True])
def test_longrope_of_a_part_of_the_head_equals_transformers(long: bool) -> None:
    short_factor, long_factor = [1 + i / 20 for i in range(16)], [1 + i for i in range(16)]
    parameters = {"rope_type": "longrope", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5,
                  "short_factor": short_factor, "long_factor": long_factor}  # fmt: skip
    config = Phi3Config(hidden_size=128, num_attention_heads=2, rope_parameters=parameters, pad_token_id=0,
                        max_position_embeddings=16_384, original_max_position_embeddings=1024)  # fmt: skip
    rope = RopeSpec(kind="longrope", partial=0.5, factor=16.0, original_max_position=1024,
                    attention_factor=math.sqrt(1 + math.log(16) / math.log(1024)), short_factor=tuple(short_factor),
                    long_factor=tuple(long_factor))  # fmt: skip
    count = 2000 if long else 1000
    cosine, sine = rotary_tables(rope, 64, count, long=long)
    wanted = Phi3RotaryEmbedding(config)(torch.zeros(1), torch.arange(count)[None])
    np.testing.assert_allclose(cosine, wanted[0][0, :, :16].numpy(), atol=3e-4)
    np.testing.assert_allclose(sine, wanted[1][0, :, :16].numpy(), atol=3e-4)
