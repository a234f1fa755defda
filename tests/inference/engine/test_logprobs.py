"""Log-probabilities against a softmax in float64."""

import numpy as np
import pytest
import torch

from inference.engine.logprobs import token_logprobs
from inference.engine.sampler import BadLogitsError


def logits_row(seed: int, size: int = 49_152, spread: float = 4.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0, 30.0])
def test_values_are_a_log_softmax_in_float64(spread):
    for seed in range(5):
        logits = logits_row(seed, spread=spread)
        reference = torch.log_softmax(torch.from_numpy(logits).double(), dim=-1)
        scored = token_logprobs(logits, 4711, 20)
        likeliest = torch.topk(reference, 20)
        assert scored.token_id == 4711
        assert scored.logprob == pytest.approx(float(reference[4711]), abs=2e-6)
        assert list(scored.top) == likeliest.indices.tolist()
        assert list(scored.top.values()) == pytest.approx(likeliest.values.tolist(), abs=2e-6)


def test_equal_tokens_come_in_order_of_id():
    logits = np.zeros(100, np.float32)
    logits[70] = 1
    assert list(token_logprobs(logits, 0, 4).top) == [70, 0, 1, 2]


def test_zero_likeliest_is_the_token_alone_and_a_small_vocabulary_is_all_of_it():
    logits = np.log(np.array([0.5, 0.2, 0.3], np.float32))
    assert token_logprobs(logits, 1, 0).top == {}
    assert token_logprobs(logits, 1, 20).top == pytest.approx({0: np.log(0.5), 2: np.log(0.3), 1: np.log(0.2)})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_without_a_distribution_is_refused(bad):
    logits = logits_row(0, 50)
    logits[3] = bad
    with pytest.raises(BadLogitsError):
        token_logprobs(logits, 1, 5)
