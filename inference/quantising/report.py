"""What a quantised model costs: KL divergence, agreement and perplexity against the model that it was made from."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from inference.artifacts.source import ModelSource
from inference.evaluate import PARTS, Comparison, evaluate, part_text
from inference.quantising.calibration import RoundInputs, load_model, rounded_inputs
from inference.text.tokenizer import TextTokenizer

ROWS = 256  # of logits compared at a time


def figures_here(out: Path, *, reference: Path) -> dict[str, float]:
    """Return the figures of the checkpoint as this engine runs it in float32. Raises ArtifactError or SpecError."""
    return evaluate(str(out), mode="float32", against="float32", reference=str(reference))["whole"]


@torch.no_grad()
def figures_with_rounded_activations(
    model: Any, layers: list[str], round_inputs: RoundInputs, *, source: ModelSource, tokenizer: TextTokenizer
) -> dict[str, float]:
    """Return the figures of a model, quantised in place, whose layers' inputs are rounded too."""
    modules = [module for name in layers if isinstance(module := model.get_submodule(name), nn.Linear)]
    original = load_model(source)
    comparison = Comparison()
    for part in PARTS:
        ids = tokenizer.encode(part_text(part), add_special_tokens=False)[: model.config.max_position_embeddings]
        wanted = original(torch.tensor([ids]), use_cache=False).logits[0]
        with rounded_inputs(modules, round_inputs):
            have = model(torch.tensor([ids]), use_cache=False).logits[0]
        for start in range(0, len(ids), ROWS):
            rows = slice(start, start + ROWS)
            comparison.add(wanted[rows].numpy(), have[rows].numpy(), ids[start + 1 : start + 1 + ROWS])
    return comparison.figures()
