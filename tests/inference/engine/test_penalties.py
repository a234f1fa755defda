"""Changing a row before the draw: against transformers' processors and OpenAI's formula, and pure in the tokens."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MinNewTokensLengthLogitsProcessor, RepetitionPenaltyLogitsProcessor

from inference.engine.penalties import LogitsAdjuster
from inference.spec import SamplingParams

VOCABULARY = 300
PROMPT = [3, 7, 7, 250]
OUTPUT = [7, 9, 9, 9, 299]


def logits_row(seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(VOCABULARY) * 3).astype(np.float32)


def adjuster(*, num_prompt: int = len(PROMPT), end_ids: tuple[int, ...] = (), **values) -> LogitsAdjuster:
    return LogitsAdjuster(SamplingParams(max_tokens=50, **values), num_prompt=num_prompt, end_ids=end_ids,
                          vocabulary=VOCABULARY)


@pytest.mark.parametrize("penalty", [0.5, 1.1, 1.3, 2.0])
def test_the_repetition_penalty_is_transformers_over_prompt_and_output(penalty):
    reference = RepetitionPenaltyLogitsProcessor(penalty)
    for seed in range(20):
        logits = logits_row(seed)
        expected = reference(torch.tensor([PROMPT + OUTPUT]), torch.from_numpy(logits.copy())[None])[0].numpy()
        assert (adjuster(repetition_penalty=penalty)(logits, PROMPT + OUTPUT) == expected).all()


@pytest.mark.parametrize(("presence", "frequency"), [(0.5, 0.0), (0.0, 0.7), (1.5, -0.3), (-2.0, 2.0)])
def test_presence_and_frequency_follow_openais_formula_over_output_only(presence, frequency):
    # mu[j] -> mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence
    # https://platform.openai.com/docs/advanced-usage#frequency-and-presence-penalties; c counts the output
    logits, counts = logits_row(), Counter(OUTPUT)
    expected = [float(mu) - counts[j] * frequency - float(counts[j] > 0) * presence for j, mu in enumerate(logits)]
    adjusted = adjuster(presence_penalty=presence, frequency_penalty=frequency)(logits, PROMPT + OUTPUT)
    assert adjusted == pytest.approx(np.array(expected), abs=1e-5)
    assert adjusted[3] == logits[3], "an id of the prompt alone isn't penalised"


def test_biases_are_added_and_those_for_ids_that_cannot_be_drawn_are_ignored():
    logits = logits_row()
    adjusted = adjuster(logit_bias=((5, 100.0), (6, -100.0), (VOCABULARY + 3, 50.0)))(logits, PROMPT)
    expected = logits.copy()
    expected[[5, 6]] += np.array([100, -100], np.float32)
    assert (adjusted == expected).all()


def test_end_ids_are_impossible_until_min_tokens_as_in_transformers():
    ends = (2, 17)
    reference = MinNewTokensLengthLogitsProcessor(len(PROMPT), 3, list(ends), device="cpu")
    adjust = adjuster(min_tokens=3, end_ids=ends)
    for count in range(6):
        tokens, logits = PROMPT + OUTPUT[:count], logits_row(count)
        expected = reference(torch.tensor([tokens]), torch.from_numpy(logits.copy())[None])[0].numpy()
        assert (adjust(logits, tokens) == expected).all()
        assert np.isinf(expected[list(ends)]).all() == (count < 3)


def test_a_request_without_extras_gets_its_own_row_back():
    logits = logits_row()
    assert adjuster()(logits, PROMPT + OUTPUT) is logits
    assert adjuster(min_tokens=5)(logits, PROMPT + OUTPUT) is logits


def test_the_models_row_is_left_as_it_was():
    logits = logits_row()
    before = logits.copy()
    adjuster(repetition_penalty=1.5, presence_penalty=1, frequency_penalty=1, logit_bias=((1, 5.0),), min_tokens=20,
             end_ids=(4,))(logits, PROMPT + OUTPUT)
    assert (logits == before).all()


@given(prompt=st.lists(st.integers(0, VOCABULARY + 9), min_size=1, max_size=100),
       output=st.lists(st.integers(0, VOCABULARY + 9), max_size=200), start=st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_counting_as_tokens_come_is_counting_them_all_at_once(prompt, output, start):
    values = {"repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.3}
    growing = adjuster(num_prompt=len(prompt), **values)
    for count in range(min(start, len(output)), len(output) + 1):  # resumed somewhere
        tokens, logits = prompt + output[:count], logits_row(count)
        fresh = adjuster(num_prompt=len(prompt), **values)(logits, tokens)
        assert (growing(logits, tokens) == fresh).all()
