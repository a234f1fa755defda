"""The float32 decoder against transformers on the same weights: the demo model, and random ones of other shapes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from inference.engine.runner import CpuRunner, load_runner
from inference.spec import EngineConfig
from tests.inference.models.steps import random_tokens, run_alone, step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

NEAR_TIE = 1e-3  # logits; below it the two implementations' rounding may pick either token
NEW_TOKENS = 64


def _load(path: Path, **settings: Any) -> CpuRunner:
    config = EngineConfig(model=str(path), mode="float32", **settings)
    return load_runner(config, on_progress=lambda phase, done, total: None)


@pytest.fixture(scope="module")
def runner(demo_chat_path: Path) -> CpuRunner:
    return _load(demo_chat_path, max_model_len=2048)


@pytest.fixture(scope="module")
def reference(demo_chat_path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        str(demo_chat_path.parent), gguf_file=demo_chat_path.name, dtype=torch.float32
    ).eval()


def _reference_logits(model: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


def test_logits_of_a_long_prompt_in_chunks_equal_the_reference(runner: CpuRunner, reference: Any) -> None:
    tokens = random_tokens(1, 1000)
    ours = np.array(run_alone(runner, tokens, chunk=96, table=list(range(70, 0, -1))).logits)
    assert np.abs(ours - _reference_logits(reference, tokens)).max() < NEAR_TIE


@pytest.mark.parametrize("length", [1, 17, 256, 1000])
def test_greedy_tokens_equal_generate_or_differ_first_at_a_near_tie(
    runner: CpuRunner, reference: Any, length: int
) -> None:
    tokens = random_tokens(length, length)
    wanted = reference.generate(
        torch.tensor([tokens]), attention_mask=torch.ones(1, length, dtype=torch.long), do_sample=False,
        max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, eos_token_id=None, pad_token_id=0,
    )[0, length:].tolist()  # fmt: skip
    row = run_alone(runner, tokens, chunk=256, table=list(range(1, 70)))
    ours = [int(row.logits[-1].argmax())]
    while len(ours) < NEW_TOKENS:
        step(runner, [(row, ours[-1:])])
        ours.append(int(row.logits[-1].argmax()))
    if ours != wanted:
        at = next(i for i in range(NEW_TOKENS) if ours[i] != wanted[i])
        first, second = np.sort(_reference_logits(reference, tokens + wanted[:at])[-1])[[-1, -2]]
        print(f"length {length}: first difference at {at}, reference's top two {first - second:.2g} apart")
        assert first - second < NEAR_TIE


SMALL = {"vocab_size": 301, "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 2,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "initializer_range": 0.3}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 500.0}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "one key head for all": {"num_attention_heads": 6, "num_key_value_heads": 1},
    "every head its own keys": {"num_attention_heads": 3, "num_key_value_heads": 3},
    "groups of two, biases": {"num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True,
                              "mlp_bias": True, "head_dim": 18},
    "tied head": {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True, "head_dim": 16},
    "head_dim of its own": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 40},
    "linear rope": {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
                    "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "llama3 rope": {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "rope_parameters": LLAMA3},
    "a large group": {"num_attention_heads": 36, "num_key_value_heads": 1, "head_dim": 8},
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_other_shapes_equal_the_reference(tmp_path: Path, name: str) -> None:
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(**SMALL, **SHAPES[name])).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at zero and norms at one
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(tmp_path)
    runner = _load(tmp_path, block_size=32, max_num_batched_tokens=64)
    tokens = random_tokens(3, 200, low=0, high=301)
    ours = np.array(run_alone(runner, tokens, chunk=61, table=[3, 1, 6, 0, 4, 2, 5]).logits)
    wanted = _reference_logits(model, tokens)
    assert np.abs(wanted).max() > 1  # not a comparison of zeros
    assert np.abs(ours - wanted).max() < 1e-3 * np.abs(wanted).max()
