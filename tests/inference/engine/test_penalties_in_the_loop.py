"""Penalties, biases and least lengths depend on prompt and output alone: in any mix, after preemption, and resumed."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.penalties import LogitsAdjuster
from inference.engine.sampler import sample
from inference.spec import SamplingParams
from tests.inference.engine.context_model import END, Harness, context_logits
from tests.inference.engine.test_loop import params


def expected_ids(prompt: list[int], chosen: SamplingParams) -> list[int]:
    """The slow twin: every token counted anew at every step, without a cache, a batch or a scheduler."""
    output: list[int] = []
    ends = {*chosen.stop_token_ids, *([] if chosen.ignore_eos else [END])}
    while len(output) < chosen.max_tokens and not ends & set(output):
        adjust = LogitsAdjuster(chosen, num_prompt=len(prompt), end_ids=ends, vocabulary=END + 1)
        logits = adjust(context_logits(prompt + output)[:END + 1], prompt + output)
        output.append(sample(logits, chosen, len(output) + 1))
    return output


def random_params(rng: random.Random) -> SamplingParams:
    return params(
        25, temperature=rng.choice([0.0, 0.9]), seed=rng.getrandbits(63), min_tokens=rng.choice([0, 10]),
        repetition_penalty=rng.choice([1.0, 1.6]), presence_penalty=rng.choice([0.0, 1.0]),
        frequency_penalty=rng.choice([0.0, -1.5]), logit_bias=((rng.randrange(256), 4.0), (END, 6.0)),
        stop_token_ids=(rng.randrange(256),), ignore_eos=rng.random() < 0.5,
    )


@pytest.mark.parametrize(("num_blocks", "budget"), [(400, 64), (400, 8), (26, 16)])
def test_a_request_gives_the_same_tokens_in_any_mix(num_blocks, budget):
    harness, rng = Harness(num_blocks=num_blocks, max_num_batched_tokens=budget), random.Random(8)
    requests = {str(number): ([rng.randrange(256) for _ in range(rng.randint(1, 30))], random_params(rng))
                for number in range(40)}
    for name, (prompt, chosen) in requests.items():
        harness.submit(name, prompt, chosen)
    for name, reply in harness.run().items():
        assert reply.token_ids == expected_ids(*requests[name])
    assert (harness.loop.stats().preemptions >= 3) == (num_blocks == 26)


@given(prompt=st.lists(st.integers(0, 255), min_size=1, max_size=12), k=st.integers(0, 25), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_a_resumed_request_goes_on_exactly_where_it_was(prompt, k, seed):
    chosen = random_params(random.Random(seed))
    right = expected_ids(prompt, chosen)
    resumed = Harness()
    resumed.submit("a", prompt, chosen, output_ids=right[:k])
    assert resumed.run()["a"].token_ids == right
