"""Guessing ahead: what is guessed, when it pays, and that no reply changes by it."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.penalties import LogitsAdjuster
from inference.engine.sampler import sample
from inference.engine.speculation import MOST_GUESSES, NgramDrafter, worthwhile
from inference.spec import SamplingParams
from tests.inference.engine.context_model import END, NAN_TOKEN, Harness, LoopingRunner, looping_logits


def proposal(tokens: list[int], most: int = MOST_GUESSES) -> list[int]:
    """What a drafter guesses that has been right so far."""
    drafter = NgramDrafter()
    for _ in range(20):
        drafter.propose([1, 2, 1, 2], decodes=1, most=3)
        drafter.observe([1, 2, 1, 2])
    drafter = _with_chance(drafter)
    return drafter.propose(tokens, decodes=1, most=most)


def _with_chance(proven: NgramDrafter) -> NgramDrafter:
    fresh = NgramDrafter()
    fresh._right, fresh._trials = proven._right, proven._trials
    return fresh


def test_what_followed_the_same_tokens_before_is_guessed():
    assert proposal([1, 2, 3, 4, 50, 51, 52, 53, 54, 9, 1, 2, 3, 4], most=3) == [50, 51, 52]


def test_the_latest_of_several_occurrences_is_taken():
    assert proposal([1, 2, 7, 7, 1, 2, 8, 8, 1, 2], most=1) == [8]


def test_a_longer_match_is_preferred_to_a_later_one():
    assert proposal([1, 2, 3, 4, 50, 3, 4, 60, 1, 2, 3, 4], most=1) == [50]


def test_a_guess_past_the_end_goes_on_as_a_loop_does():
    assert proposal([9, 1, 2, 3, 1, 2, 3], most=7) == [1, 2, 3, 1, 2, 3, 1]


def test_tokens_that_never_came_before_give_no_guess():
    assert proposal(list(range(40))) == []


@given(tokens=st.lists(st.integers(0, 4), min_size=1, max_size=60), most=st.integers(0, 20))
def test_a_drafter_that_sees_tokens_one_by_one_guesses_like_one_that_sees_them_at_once(tokens, most):
    gradual = NgramDrafter()
    for length in range(1, len(tokens)):
        gradual.propose(tokens[:length], decodes=1, most=0)
    assert gradual.propose(tokens, decodes=1, most=most) == NgramDrafter().propose(tokens, decodes=1, most=most)


def test_wrong_guesses_switch_it_off_and_right_ones_on_again():
    drafter, tokens = NgramDrafter(), [1, 2, 3, 4, 5, 1, 2]
    assert drafter.propose(tokens, decodes=1, most=3) == [3, 4, 5]
    for _ in range(8):
        drafter.observe([99])
        guess = drafter.propose(tokens, decodes=1, most=3)
    assert guess == []
    for _ in range(10):  # nobody verifies the guess now, but the token shows that it would have been right
        drafter.observe([3])
        guess = drafter.propose(tokens, decodes=1, most=3)
    assert guess == [3, 4, 5]


@pytest.mark.parametrize("decodes", [1, 8, 32, 256])
def test_guesses_must_be_surer_in_a_larger_batch(decodes):
    counts = [worthwhile(chance / 100, decodes) for chance in range(101)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[100] == MOST_GUESSES
    assert counts[80] <= worthwhile(0.8, 1)


# Replies


def expected_ids(prompt: list[int], chosen: SamplingParams) -> list[int]:
    """The slow twin: one token after the other."""
    end_ids = set(chosen.stop_token_ids) | (set() if chosen.ignore_eos else {END})
    adjust = LogitsAdjuster(chosen, num_prompt=len(prompt), end_ids=end_ids, vocabulary=END + 1)
    output: list[int] = []
    while len(output) < chosen.max_tokens:
        row = adjust(looping_logits(prompt + output)[:END + 1], prompt + output)
        output.append(sample(row, chosen, len(output) + 1))
        if output[-1] in end_ids:
            break
    return output


def random_requests(count: int) -> dict[str, tuple[list[int], SamplingParams]]:
    rng = random.Random(3)
    requests = {}
    for number in range(count):
        prompt = [rng.randrange(6) for _ in range(rng.randint(1, 40))]
        requests[str(number)] = prompt, SamplingParams(
            max_tokens=rng.randint(1, 60), temperature=rng.choice([0.0, 0.3, 0.8]), seed=number,
            ignore_eos=rng.random() < 0.7, min_tokens=rng.choice([0, 1]),
            repetition_penalty=rng.choice([1.0, 1.0, 1.1]), frequency_penalty=rng.choice([0.0, 0.0, 0.2]),
        )  # fmt: skip
    return requests


def run_mix(harness: Harness, requests: dict[str, tuple[list[int], SamplingParams]]) -> None:
    waiting, rng = list(requests.items()), random.Random(1)
    while waiting or harness.loop.has_work:
        if waiting and rng.random() < 0.3:
            name, (prompt, chosen) = waiting.pop(0)
            harness.submit(name, prompt, chosen)
        harness.step()


@pytest.mark.parametrize(("num_blocks", "budget", "preempts"), [(400, 64, False), (400, 8, False), (28, 32, True)])
def test_replies_are_those_of_one_token_a_step_in_any_mix(num_blocks, budget, preempts):
    requests = random_requests(80)
    harness = Harness(num_blocks=num_blocks, max_num_batched_tokens=budget, runner=LoopingRunner, speculation=True)
    run_mix(harness, requests)
    for name, (prompt, chosen) in requests.items():
        assert harness.replies[name].token_ids == expected_ids(prompt, chosen)
        assert harness.replies[name].ends == 1
    several = [delta for output in harness.outputs for delta in output.deltas if len(delta.token_ids) > 1]
    assert len(several) > 10
    assert (harness.loop.stats().preemptions >= 5) == preempts
    assert harness.loop.stats().held_blocks == 0


def test_a_repetitive_reply_takes_far_fewer_steps():
    chosen = SamplingParams(max_tokens=150, temperature=0.0, ignore_eos=True)
    steps = {}
    for speculation in (False, True):
        harness = Harness(runner=LoopingRunner, speculation=speculation)
        harness.submit("a", [1, 2, 3], chosen)
        assert harness.run()["a"].token_ids == expected_ids([1, 2, 3], chosen)
        steps[speculation] = harness.loop.stats().steps
    assert steps[True] * 3 < steps[False]


@given(prompt=st.lists(st.integers(0, 5), min_size=1, max_size=12), k=st.integers(0, 60), seed=st.integers(0, 2**62),
       stop_at=st.integers(0, 50), stop_length=st.integers(1, 4), greedy=st.booleans())
@settings(max_examples=60, deadline=None)
def test_stop_strings_and_resumption_give_what_they_give_without_speculation(prompt, k, seed, stop_at, stop_length,
                                                                             greedy):
    values = {"max_tokens": 60, "temperature": 0.0 if greedy else 0.5, "seed": seed, "ignore_eos": True}
    plain = Harness(runner=LoopingRunner)
    plain.submit("whole", prompt, SamplingParams(**values))
    text = plain.run()["whole"].text
    chosen = SamplingParams(**values, stop=(text[stop_at:stop_at + stop_length] or "never",))
    plain.submit("a", prompt, chosen)
    undisturbed = plain.run()["a"]
    k = min(k, len(undisturbed.token_ids))
    harness = Harness(runner=LoopingRunner, speculation=True)
    harness.submit("a", prompt, chosen, output_ids=undisturbed.token_ids[:k])
    reply = harness.run()["a"]
    assert reply.token_ids == undisturbed.token_ids
    assert reply.texts == undisturbed.texts[k:]
    assert reply.finish_reason == undisturbed.finish_reason


class CountingRunner(LoopingRunner):
    """After 0 comes 1, up to 4, then the end, and then 0 again."""

    def logits(self, context: list[int]) -> np.ndarray:
        after = {4: END, END: 0}.get(context[-1], context[-1] + 1)
        return np.where(np.arange(self.vocab_size) == after, 1, 0).astype(np.float32)


def test_an_end_inside_a_draft_ends_the_reply_there():
    harness = Harness(runner=CountingRunner, speculation=True, max_num_batched_tokens=64)
    harness.submit("a", [0, 1, 2, 3, 4, END] * 3 + [0], SamplingParams(max_tokens=50, temperature=0.0))
    reply = harness.run()["a"]
    assert (reply.token_ids, reply.finish_reason) == ([1, 2, 3, 4, END], "stop")
    assert [len(delta.token_ids) for output in harness.outputs for delta in output.deltas] == [1, 4]
    assert reply.text == harness.tokenizer.decode([1, 2, 3, 4])


def test_a_cancel_and_a_failure_leave_no_block_behind():
    harness = Harness(runner=LoopingRunner, speculation=True)
    chosen = SamplingParams(max_tokens=100, temperature=0.0, ignore_eos=True)
    for name, first in (("cancelled", 1), ("bad", NAN_TOKEN), ("good", 2)):
        harness.submit(name, [first, 1, 2, 1, 2, 1, 2], chosen)
    for _ in range(6):
        harness.step()
    harness.loop.cancel("cancelled")
    replies = harness.run()
    assert replies["bad"].finish_reason == "failed"
    assert replies["good"].token_ids == expected_ids([2, 1, 2, 1, 2, 1, 2], chosen)
    assert harness.loop.stats().held_blocks == 0


def test_a_reply_to_the_context_s_last_token_is_not_guessed_past_it():
    harness = Harness(runner=LoopingRunner, speculation=True, max_model_len=64, num_blocks=16)
    harness.submit("a", [1, 2] * 20, SamplingParams(max_tokens=100, temperature=0.0, ignore_eos=True))
    reply = harness.run()["a"]
    assert (len(reply.token_ids), reply.finish_reason) == (24, "length")


def test_verified_tokens_are_reused_from_the_prefix_cache():
    harness = Harness(runner=LoopingRunner, speculation=True)
    chosen = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
    harness.submit("a", [1, 2, 3], chosen)
    output = harness.run()["a"].token_ids
    harness.submit("b", [1, 2, 3, *output[:50]], SamplingParams(max_tokens=10, temperature=0.0, ignore_eos=True))
    computed = harness.runner.tokens_computed
    assert harness.run()["b"].token_ids == output[50:]
    assert harness.runner.tokens_computed - computed < 40
