"""The sampler on tensors draws what the sampler of rows draws, for each parameter and in mixed batches."""

import numpy as np
import pytest
import torch

from inference.engine.batch import BAD, Draw
from inference.engine.device_sampler import sample_rows
from inference.engine.sampler import BadLogitsError, sample
from inference.spec import SamplingParams

VOCABULARY = 700
SETTINGS = [
    {"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.3}, {"temperature": 2.5},
    {"top_k": 1}, {"top_k": 40}, {"top_k": 10_000}, {"top_k": -1}, {"top_p": 0.9}, {"top_p": 0.0}, {"top_p": 1.0},
    {"min_p": 0.2}, {"top_k": 50, "top_p": 0.7, "min_p": 0.05, "temperature": 1.4},
]  # fmt: skip


def _params(number: int) -> SamplingParams:
    return SamplingParams(max_tokens=1, seed=1000 + number, **SETTINGS[number % len(SETTINGS)])  # type: ignore[arg-type]


@pytest.mark.parametrize("ties", [False, True])
def test_a_mixed_batch_draws_what_each_row_draws_alone(ties: bool) -> None:
    rng = np.random.default_rng(1)
    for position in range(1, 9):
        logits = rng.normal(0, 3, (52, VOCABULARY)).astype(np.float32)
        if ties:
            logits = np.round(logits)
        draws = [Draw(_params(row), position) for row in range(len(logits))]
        ours = sample_rows(torch.from_numpy(logits), draws).tolist()
        assert ours == [sample(row, draw.params, position) for row, draw in zip(logits, draws, strict=True)]


def test_the_draws_follow_the_distribution() -> None:
    """10,000 draws of four weights are within five standard deviations of their shares."""
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    logits = torch.from_numpy(np.log(shares).astype(np.float32)).expand(10_000, 4)
    draws = [Draw(SamplingParams(max_tokens=1, seed=7), position) for position in range(1, 10_001)]
    counts = np.bincount(sample_rows(logits, draws).numpy(), minlength=4)
    assert (np.abs(counts - 10_000 * shares) < 5 * np.sqrt(10_000 * shares * (1 - shares))).all()


@pytest.mark.parametrize("greedy", [True, False])
def test_a_row_without_a_token_to_choose_is_marked_and_its_neighbours_are_drawn(greedy: bool) -> None:
    logits = np.zeros((3, 5), np.float32)
    logits[0, 3], logits[1, 2] = 9.0, np.nan
    params = SamplingParams(max_tokens=1, temperature=0 if greedy else 0.1)
    with pytest.raises(BadLogitsError):
        sample(logits[1], params, 1)
    drawn = sample_rows(torch.from_numpy(logits), [Draw(params, 1)] * 3).tolist()
    assert drawn[:2] == [3, BAD] and 0 <= drawn[2] < 5
