"""What the 8-bit mode costs: its distributions against float32's on the committed text, and the measure itself."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from inference.engine.batch import Float32
from inference.evaluate import PARTS, TEXTS, Comparison, evaluate, log_softmax, main, part_text
from inference.text.tokenizer import TextTokenizer


def _logits(seed: int, rows: int = 5) -> Float32:
    return np.random.default_rng(seed).standard_normal((rows, 300)).astype(np.float32) * 4


def test_figures_equal_torch() -> None:
    reference, other, following = _logits(1), _logits(1) + _logits(2) / 9, [3, 299, 0, 17]
    comparison = Comparison()
    comparison.add(reference, other, following)
    want, have = (torch.log_softmax(torch.from_numpy(x).double(), dim=-1) for x in (reference, other))
    kl = torch.nn.functional.kl_div(have, want, reduction="none", log_target=True).sum(-1)
    np.testing.assert_allclose(comparison.kl, kl.numpy(), rtol=1e-9)
    losses = torch.nn.functional.cross_entropy(torch.from_numpy(other[:4]).double(), torch.tensor(following))
    figures = comparison.figures()
    assert figures["tokens"] == 5
    assert figures["perplexity"] == pytest.approx(float(losses.exp()), abs=1e-4)
    assert figures["max_kl"] == pytest.approx(float(kl.max()), abs=1e-6)
    same = (torch.from_numpy(reference).argmax(-1) == torch.from_numpy(other).argmax(-1)).double()
    assert figures["argmax_agreement"] == pytest.approx(float(same.mean()), abs=1e-5)


def test_a_mode_compared_with_itself_costs_nothing() -> None:
    comparison = Comparison()
    comparison.add(_logits(3), _logits(3), [1, 2, 3, 4])
    figures = comparison.figures()
    assert (figures["mean_kl"], figures["argmax_agreement"]) == (0, 1)
    assert figures["perplexity"] == figures["reference_perplexity"]


def test_log_softmax_bears_large_logits() -> None:
    large = np.array([[1e4, 0.0, -1e4]], np.float32)
    np.testing.assert_allclose(log_softmax(large), [[0.0, -1e4, -2e4]])


def test_the_text_is_a_quarter_or_more_of_each_kind_and_its_sources_are_named(demo_chat_path: Path) -> None:
    tokenizer = TextTokenizer.from_path(demo_chat_path)
    counts = {part: len(tokenizer.encode(part_text(part), add_special_tokens=False)) for part in PARTS}
    assert sum(counts.values()) >= 2000
    assert min(counts.values()) >= sum(counts.values()) / 4
    sources = (TEXTS / "SOURCES.md").read_text(encoding="utf-8")
    assert all(f"`{part}.txt`" in sources for part in PARTS)
    assert {path.name for path in TEXTS.iterdir()} == {f"{part}.txt" for part in PARTS} | {"SOURCES.md"}


@pytest.mark.slow
@pytest.mark.timeout(600)  # a cold start compiles the kernels
def test_the_default_mode_answers_like_float32_on_every_part(demo_chat_path: Path) -> None:
    """A kernel that computes something else in int8 alone, as a miscompiled one did once, fails this at once."""
    figures = evaluate(str(demo_chat_path), mode="int8", against="float32")
    print(json.dumps(figures))
    assert figures["whole"]["tokens"] >= 2000
    assert figures["whole"]["mean_kl"] <= 0.01
    assert figures["whole"]["argmax_agreement"] >= 0.93
    for part in PARTS:
        assert 0 < figures[part]["mean_kl"] <= 0.015, part
        assert figures[part]["perplexity"] < 1.02 * figures[part]["reference_perplexity"], part


def test_a_model_that_cannot_be_read_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nothing.gguf"
    assert main([str(missing)]) == 1
    assert "nothing.gguf" in capsys.readouterr().err
