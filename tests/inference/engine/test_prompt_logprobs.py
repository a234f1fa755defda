"""Log-probabilities through the loop: right in every mix, told once, and the same after preemption and resuming."""

import functools
import random

import numpy as np
import pytest
import torch

from inference.protocol import TokenLogprobs
from inference.spec import SamplingParams
from tests.inference.engine.context_model import NAN_TOKEN, Harness, context_logits
from tests.inference.engine.test_loop import expected_ids, params


@functools.cache
def reference(context: tuple[int, ...]) -> np.ndarray:
    logits = torch.from_numpy(context_logits(list(context))).double()
    return torch.log_softmax(logits, dim=-1).numpy()


def assert_scores(scores: list[TokenLogprobs], context: list[int], tokens: list[int], count: int) -> None:
    """Each token's score is that of the reference after the context and the tokens before it."""
    assert [score.token_id for score in scores] == tokens
    for place, score in enumerate(scores):
        right = reference((*context, *tokens[:place]))
        likeliest = np.argsort(-right, kind="stable")[:count]
        assert list(score.top) == likeliest.tolist()
        values = [score.logprob, *score.top.values()]
        assert values == pytest.approx([right[score.token_id], *right[likeliest]], abs=1e-5)


def scores_of(harness: Harness, name: str) -> tuple[list[TokenLogprobs], list[TokenLogprobs]]:
    """(of the prompt, of the output), as the deltas told them."""
    deltas = [delta for output in harness.outputs for delta in output.deltas if delta.request_id == name]
    assert all(not delta.prompt_logprobs or delta.index <= 1 for delta in deltas)
    return [s for delta in deltas for s in delta.prompt_logprobs], [s for delta in deltas for s in delta.logprobs]


@pytest.mark.parametrize(("num_blocks", "budget"), [(400, 64), (400, 8), (26, 16)])
def test_scores_are_right_in_any_mix(num_blocks, budget):
    harness, rng = Harness(num_blocks=num_blocks, max_num_batched_tokens=budget), random.Random(2)
    shared = [rng.randrange(256) for _ in range(16)]
    requests: dict[str, tuple[list[int], SamplingParams]] = {}
    for number in range(24):
        prompt = shared[:rng.choice([0, 8, 16])] + [rng.randrange(256) for _ in range(rng.randint(1, 20))]
        chosen = params(rng.randint(1, 20), temperature=rng.choice([0.0, 0.8]), seed=number,
                        prompt_logprobs=rng.choice([None, 0, 3]), logprobs=rng.choice([None, 0, 2]))
        requests[str(number)] = prompt, chosen
        harness.submit(str(number), prompt, chosen)
    harness.run()
    for name, (prompt, chosen) in requests.items():
        tokens = harness.replies[name].token_ids
        assert tokens == expected_ids(prompt, chosen)
        of_prompt, of_output = scores_of(harness, name)
        if chosen.prompt_logprobs is not None:
            assert_scores(of_prompt, prompt[:1], prompt[1:], chosen.prompt_logprobs)
        if chosen.logprobs is not None:
            assert_scores(of_output, prompt, tokens, chosen.logprobs)
        assert bool(of_output) == (chosen.logprobs is not None)
        assert bool(of_prompt) == (chosen.prompt_logprobs is not None and len(prompt) > 1)
    assert (harness.loop.stats().preemptions > 0) == (num_blocks == 26)


def test_a_prompt_that_lost_its_blocks_while_it_was_scored_is_told_once():
    harness = Harness(num_blocks=10, max_num_seqs=2, max_num_batched_tokens=3)
    old, new = [3] * 8, list(range(20))
    harness.submit("old", old, params(30, ignore_eos=True))
    harness.submit("new", new, params(5, ignore_eos=True, prompt_logprobs=1))
    harness.run()
    of_prompt, _ = scores_of(harness, "new")
    assert harness.loop.stats().preemptions > 0
    assert_scores(of_prompt, new[:1], new[1:], 1)


def test_a_cached_prompt_is_scored_all_the_same():
    harness, prompt = Harness(), list(range(30))
    harness.submit("first", prompt, params(1))
    harness.run()
    harness.submit("second", prompt, params(1, prompt_logprobs=0))
    harness.run()
    assert_scores(scores_of(harness, "second")[0], prompt[:1], prompt[1:], 0)


def test_a_resumed_request_goes_on_with_its_scores_and_does_not_repeat_the_prompts():
    prompt, chosen = [5, 6, 7], params(10, ignore_eos=True, logprobs=2, prompt_logprobs=2)
    whole = Harness()
    whole.submit("a", prompt, chosen)
    tokens = whole.run()["a"].token_ids
    resumed = Harness()
    resumed.submit("a", prompt, chosen, output_ids=tokens[:4])
    resumed.run()
    assert scores_of(resumed, "a") == ([], scores_of(whole, "a")[1][4:])


def test_a_prompt_without_a_distribution_ends_its_request_alone():
    harness = Harness()
    harness.submit("bad", [NAN_TOKEN, 5, 6], params(prompt_logprobs=1))
    harness.submit("good", [4, 5], params())
    replies = harness.run()
    assert replies["bad"].finish_reason == "failed"
    assert "nan" in replies["bad"].error
    assert replies["good"].token_ids == expected_ids([4, 5], params())
