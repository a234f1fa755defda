"""Every method on the demo chat model: what it costs, and that transformers reads the result to the same replies."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

from inference.engine.runner import load_runner
from inference.quantising.methods import METHODS, Choices, method_of
from inference.quantize import quantise_checkpoint
from inference.spec import EngineConfig
from inference.text.prompt import PromptBuilder
from tests.inference.greedy_prompts import CONVERSATIONS
from tests.inference.models.steps import Row, step

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

MOST_KL = {"smoothquant-int8": 0.02, "fp8": 0.02, "gptq-int4": 0.15, "awq-int4": 0.2}  # nats, mean over the text
PROMPTS, NEW_TOKENS, NEAR_TIE = (0, 6, 9, 17), 32, 1e-3


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_the_demo_models_distribution_and_transformers_agrees(
    name: str, demo_chat_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, method = tmp_path / "out", method_of(name, Choices(group_size=64))
    figures = quantise_checkpoint(demo_chat_path, out, method, texts=[])
    with capsys.disabled():
        print(f"\n{name}: {figures}")
    assert figures["here"]["mean_kl"] <= MOST_KL[name]
    if "rounded_activations" in figures:
        assert figures["rounded_activations"]["mean_kl"] <= MOST_KL[name]
    ties = _compare_greedy(out)
    with capsys.disabled():
        print(f"{name}: {ties} near-ties")


def _compare_greedy(folder: Path) -> int:
    """Assert that transformers finds the tokens that this engine draws in float32; return how many were near-ties."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 quantization_config=CompressedTensorsConfig(dequantize=True))
    config = EngineConfig(model=str(folder), mode="float32", max_model_len=1024, max_num_seqs=4,
                          max_num_batched_tokens=512)
    runner = load_runner(config, on_progress=lambda *_: None)
    builder, ties = PromptBuilder.from_path(folder), 0
    for place in PROMPTS:
        prompt = builder.chat_ids(CONVERSATIONS[place])
        row, ids = Row(table=list(range(64))), list(prompt)
        step(runner, [(row, prompt)])
        for _ in range(NEW_TOKENS):
            ids.append(int(np.argmax(row.logits[-1])))
            step(runner, [(row, ids[-1:])])
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1]
        for theirs, token in zip(logits, ids[len(prompt):], strict=True):
            behind = float(theirs.max() - theirs[token])
            assert behind < NEAR_TIE
            ties += behind > 0
    return ties
