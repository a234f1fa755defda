"""Rotary frequencies against transformers' own functions."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from inference.decoder_spec import RopeSpec
from inference.layers.rotary import rotary_tables

CASES: dict[str, tuple[RopeSpec, dict[str, Any]]] = {
    "default": (RopeSpec(theta=100_000.0), {"rope_type": "default", "rope_theta": 100_000.0}),
    "linear": (
        RopeSpec(kind="linear", factor=4.0),
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
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
