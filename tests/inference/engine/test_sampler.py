"""Drawing a token: against transformers' warpers, the exact distribution, and published random numbers."""


import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from inference.engine.sampler import BadLogitsError, sample, uniform
from inference.spec import SamplingParams

VOCABULARY = 1000


def logits_row(seed: int, size: int = VOCABULARY, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def params(**values) -> SamplingParams:
    return SamplingParams(max_tokens=1, **values)


def reference_probabilities(logits: np.ndarray, chosen: SamplingParams) -> np.ndarray:
    """What transformers' `generate` would draw from."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(float(chosen.temperature))])
    if chosen.top_k > 0:
        warpers.append(TopKLogitsWarper(chosen.top_k))
    if chosen.top_p < 1:
        warpers.append(TopPLogitsWarper(chosen.top_p))
    if chosen.min_p > 0:
        warpers.append(MinPLogitsWarper(chosen.min_p))
    scores = warpers(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(logits.astype(np.float64))[None])
    return torch.softmax(scores, dim=-1)[0].numpy()


FILTERS = [
    {}, {"temperature": 0.3}, {"temperature": 2.5}, {"top_k": 1}, {"top_k": 40}, {"top_k": -1}, {"top_k": 5000},
    {"top_p": 0.9}, {"top_p": 0.3}, {"top_p": 0.999}, {"top_p": 1.0}, {"min_p": 0.1},
    {"top_k": 50, "top_p": 0.8}, {"top_k": 100, "top_p": 0.95, "min_p": 0.05, "temperature": 1.3},
    {"top_p": 0.9, "min_p": 0.02, "temperature": 100.0},
]


@pytest.mark.parametrize("values", FILTERS, ids=str)
def test_a_draw_is_the_inverse_of_transformers_cumulated_probabilities(values):
    wrong = 0
    for seed in range(200):
        logits = logits_row(seed)
        chosen = params(seed=seed, **{"temperature": 1.0, **values})
        cumulated = np.cumsum(reference_probabilities(logits, chosen))
        u = uniform(seed, 7)
        expected = int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))
        near_border = np.abs(cumulated - u * cumulated[-1]).min() < 1e-6  # float32 weights against float64
        wrong += sample(logits, chosen, 7) != expected and not near_border
    assert wrong == 0


def test_top_p_zero_is_the_likeliest_token():
    logits = logits_row(3)
    assert {sample(logits, params(top_p=0.0, seed=seed), 1) for seed in range(50)} == {int(logits.argmax())}


def test_equal_weights_at_a_border_are_kept_from_the_lowest_id_on():
    logits = np.zeros(100, dtype=np.float32)
    assert {sample(logits, params(top_k=3, seed=seed), 1) for seed in range(200)} == {0, 1, 2}
    assert {sample(logits, params(top_p=0.05, seed=seed), 1) for seed in range(200)} == {0, 1, 2, 3, 4}


def test_greedy_takes_the_lowest_id_of_equal_logits():
    logits = np.zeros(50, dtype=np.float32)
    logits[[7, 31]] = 4
    assert sample(logits, params(temperature=0), 1) == 7
    assert sample(logits, params(temperature=9e-5), 1) == 7


def test_frequencies_follow_the_softmax():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    draws = np.bincount([sample(logits, params(seed=11), position) for position in range(1, 20_001)], minlength=4)
    assert draws / 20_000 == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.012)  # 3.4 standard deviations


def test_uniform_is_splitmix64():
    # The first outputs for seed 1234567: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
                 16408922859458223821]
    assert [uniform(1234567, n) for n in range(1, 6)] == [(value >> 11) * 2.0**-53 for value in published]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_without_a_largest_are_refused(bad):
    logits = logits_row(0)
    logits[5] = bad
    for temperature in (0.0, 1.0):
        with pytest.raises(BadLogitsError):
            sample(logits, params(temperature=temperature), 1)


def test_logits_of_minus_infinity_are_never_drawn():
    logits = np.full(600, -np.inf, dtype=np.float32)
    logits[[3, 599]] = 0
    assert {sample(logits, params(seed=seed), 1) for seed in range(100)} == {3, 599}


def test_a_row_gives_the_same_token_wherever_it_lies_in_memory():
    row = logits_row(1, 49_152)
    batch = np.stack([logits_row(i, 49_152) for i in range(7)] + [row])
    shifted = np.empty(49_152 + 3, dtype=np.float32)[3:]
    shifted[:] = row
    for seed in range(40):
        chosen = params(seed=seed, top_p=0.95)
        assert sample(batch[7], chosen, 2) == sample(row, chosen, 2) == sample(shifted, chosen, 2)
