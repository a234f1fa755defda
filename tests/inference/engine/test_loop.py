"""The loop from submit to last delta: a result depends on its request alone, and no request can hurt another."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.sampler import sample
from inference.protocol import SequenceDelta
from inference.spec import SamplingParams, SpecError
from tests.inference.engine.context_model import (
    CRASH_TOKEN,
    END,
    NAN_TOKEN,
    VOCABULARY,
    Harness,
    byte_tokenizer,
    context_logits,
)


def params(max_tokens: int = 12, **values) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, **{"temperature": 0.0, **values})


def expected_ids(prompt: list[int], chosen: SamplingParams) -> list[int]:
    """The slow twin: one token after the other, without a cache, a batch or a scheduler."""
    output: list[int] = []
    while len(output) < chosen.max_tokens:
        output.append(sample(context_logits(prompt + output)[:END + 1], chosen, len(output) + 1))
        if output[-1] == END and not chosen.ignore_eos:
            break
    return output


def text_after(prompt: list[int], output: list[int]) -> str:
    """What the output adds to the decoded whole; where the prompt ends within a character, the whole character."""
    before, whole = byte_tokenizer().decode(prompt), byte_tokenizer().decode(prompt + output)
    return whole[len(before):] if whole.startswith(before) else whole[len(before) - 1:]


def random_requests(count: int, seed: int = 0) -> dict[str, tuple[list[int], SamplingParams]]:
    rng = random.Random(seed)
    shared = [rng.randrange(256) for _ in range(24)]
    requests = {}
    for number in range(count):
        prompt = shared[:rng.choice([0, 8, 24])] + [rng.randrange(256) for _ in range(rng.randint(1, 30))]
        chosen = params(rng.randint(1, 30), temperature=rng.choice([0.0, 0.8]), top_p=rng.choice([1.0, 0.9]),
                        seed=number, ignore_eos=rng.random() < 0.5)
        requests[str(number)] = prompt, chosen
    return requests


@pytest.mark.parametrize(("num_blocks", "budget", "preempts"), [(400, 64, False), (400, 8, False), (26, 16, True)])
def test_a_request_gives_the_same_tokens_in_any_mix(num_blocks, budget, preempts):
    harness = Harness(num_blocks=num_blocks, max_num_batched_tokens=budget)
    requests = random_requests(60)
    waiting = list(requests.items())
    rng = random.Random(1)
    while waiting or harness.loop.has_work:
        for _ in range(rng.choice([0, 0, 1, 3])):
            if waiting:
                name, (prompt, chosen) = waiting.pop(0)
                harness.submit(name, prompt, chosen)
        harness.step()
    for name, (prompt, chosen) in requests.items():
        reply = harness.replies[name]
        assert reply.token_ids == expected_ids(prompt, chosen)
        assert reply.text == text_after(prompt, reply.token_ids)
        assert reply.finish_reason == ("stop" if reply.token_ids[-1] == END and not chosen.ignore_eos else "length")
        assert reply.ends == 1
    assert (harness.loop.stats().preemptions >= 5) == preempts
    assert harness.loop.stats().held_blocks == 0


@given(prompt=st.lists(st.integers(0, 255), min_size=1, max_size=12), k=st.integers(0, 40), seed=st.integers(0, 2**62),
       stop_at=st.integers(0, 38), stop_length=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_a_resumed_request_goes_on_exactly_where_it_was(prompt, k, seed, stop_at, stop_length):
    whole = Harness()
    whole.submit("a", prompt, params(40, temperature=1.0, seed=seed, ignore_eos=True))
    text = whole.run()["a"].text
    chosen = params(40, temperature=1.0, seed=seed, ignore_eos=True,
                    stop=(text[stop_at:stop_at + stop_length] or "never", "another one"))
    whole.submit("b", prompt, chosen)
    undisturbed = whole.run()["b"]

    k = min(k, len(undisturbed.token_ids))
    resumed = Harness()
    resumed.submit("b", prompt, chosen, output_ids=undisturbed.token_ids[:k])
    reply = resumed.run()["b"]
    assert reply.token_ids == undisturbed.token_ids
    assert reply.texts == undisturbed.texts[k:]
    assert reply.finish_reason == undisturbed.finish_reason
    assert reply.text == "".join(undisturbed.texts[k:])


def test_a_request_whose_last_token_was_already_told_only_gets_its_end():
    harness = Harness()
    harness.submit("a", [5, 6], params(3), output_ids=[40, 41, 42])
    (delta,) = harness.step().deltas
    assert (delta.index, delta.token_ids, delta.finish_reason, delta.tail) == (3, [], "length", "")
    assert not harness.loop.has_work


def test_stop_token_ids_end_a_reply_without_text():
    prompt = [9, 9]
    third = expected_ids(prompt, params(3))[2]
    harness = Harness()
    harness.submit("a", prompt, params(10, stop_token_ids=(third,)))
    reply = harness.run()["a"]
    assert reply.token_ids[-1] == third
    assert reply.text == harness.tokenizer.decode(reply.token_ids[:-1])
    assert reply.finish_reason == "stop"


def test_nan_logits_end_their_request_alone():
    harness = Harness()
    good, bad = [4, 5, 6], [NAN_TOKEN, 5, 6]
    harness.submit("good", good, params())
    harness.submit("bad", bad, params())
    harness.submit("also good", [7, *good], params())
    replies = harness.run()
    assert (replies["bad"].finish_reason, replies["bad"].token_ids) == ("failed", [])
    assert "nan" in replies["bad"].error
    assert replies["good"].token_ids == expected_ids(good, params())
    assert replies["also good"].token_ids == expected_ids([7, *good], params())


def test_a_step_that_raises_ends_its_requests_and_the_engine_goes_on(caplog):
    harness = Harness(max_num_batched_tokens=8)
    harness.submit("crash", [CRASH_TOKEN] * 3, params())
    (delta,) = harness.step().deltas
    assert (delta.finish_reason, delta.error) == ("failed", "the model failed: planted")
    assert "planted" in caplog.text
    harness.submit("next", [4, 5], params())
    assert harness.run()["next"].token_ids == expected_ids([4, 5], params())
    assert harness.loop.stats().held_blocks == 0


REFUSED = [
    ("an empty prompt", {"prompt": []}, "prompt_ids", "empty"),
    ("a prompt id over the vocabulary", {"prompt": [3, VOCABULARY]}, "prompt_ids", f"{VOCABULARY} is outside"),
    ("a negative prompt id", {"prompt": [-1]}, "prompt_ids", "-1 is outside"),
    ("an output id over the vocabulary", {"output_ids": [2**40]}, "output_ids", "outside"),
    ("a stop id over the vocabulary", {"chosen": params(stop_token_ids=(999,))}, "stop_token_ids", "999"),
    ("a prompt as long as the context", {"prompt": [3] * 200}, "prompt_ids", "200 tokens.*at most 200"),
    ("a prompt beyond the cache", {"prompt": [3] * 150, "num_blocks": 20}, "prompt_ids", "150 tokens.*only 80"),
]


@pytest.mark.parametrize(("what", "values", "where", "reason"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_can_never_be_served_is_refused_at_once(what, values, where, reason):
    harness = Harness(num_blocks=values.get("num_blocks", 64))
    with pytest.raises(SpecError, match=reason) as caught:
        harness.submit("a", values.get("prompt", [3]), values.get("chosen", params()),
                       output_ids=values.get("output_ids"))
    assert caught.value.field == where
    assert not harness.loop.has_work


def test_an_id_that_is_running_is_refused_and_the_first_goes_on():
    harness = Harness()
    harness.submit("a", [3], params())
    with pytest.raises(SpecError, match="already running"):
        harness.submit("a", [4], params())
    assert harness.run()["a"].token_ids == expected_ids([3], params())


def test_the_longest_prompt_gets_one_token():
    harness = Harness()
    harness.submit("a", [3] * 199, params(50))
    reply = harness.run()["a"]
    assert (len(reply.token_ids), reply.finish_reason) == (1, "length")


def test_new_tokens_past_the_context_are_cut():
    harness = Harness()
    harness.submit("a", [3] * 190, params(50, ignore_eos=True))
    reply = harness.run()["a"]
    assert (len(reply.token_ids), reply.finish_reason) == (10, "length")


def test_a_reply_that_fills_the_cache_ends_there():
    harness = Harness(num_blocks=5)
    harness.submit("a", [3, 4], params(100, ignore_eos=True))
    assert len(harness.run()["a"].token_ids) == 5 * 4 - 2


@pytest.mark.parametrize("steps", [0, 1, 2, 6])
def test_cancel_frees_the_blocks_at_once_and_keeps_the_partial_text(steps):
    harness = Harness(max_num_batched_tokens=8)
    harness.submit("a", list(range(12)), params(100, ignore_eos=True))
    for _ in range(steps):
        harness.step()
    harness.loop.cancel("a")
    harness.loop.cancel("a")
    harness.loop.cancel("nobody")
    stats = harness.loop.stats()
    assert (stats.running, stats.waiting, stats.held_blocks) == (0, 0, 0)
    (delta,) = harness.step().deltas
    assert delta.finish_reason == "cancelled"
    reply = harness.replies["a"]
    assert reply.text == harness.tokenizer.decode(reply.token_ids)
    assert not harness.loop.has_work


def test_cancel_releases_text_that_was_held_for_a_stop_string():
    prompt = [9, 9]
    text = byte_tokenizer().decode(expected_ids(prompt, params(2, ignore_eos=True)))
    harness = Harness()
    harness.submit("a", prompt, params(50, ignore_eos=True, stop=(text + "something else",)))
    harness.step()
    harness.step()
    harness.loop.cancel("a")
    (delta,) = harness.step().deltas
    assert delta.tail == text


def test_others_get_a_token_every_step_while_a_long_prompt_is_computed():
    harness = Harness(num_blocks=400)
    harness.submit("short", [3, 4], params(60, ignore_eos=True))
    harness.step()
    harness.submit("long", [5] * 190, params(2))
    for _ in range(12):
        deltas = {delta.request_id: delta for delta in harness.step().deltas}
        assert len(deltas["short"].token_ids) == 1
        assert deltas["long"].token_ids == []


@dataclass
class Clock:
    now: float = 100.0
    seen: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now


def test_phases_and_times_are_reported():
    clock = Clock()
    harness = Harness(max_num_seqs=1, max_num_batched_tokens=8, clock=clock)
    harness.submit("a", list(range(20)), params(2, ignore_eos=True))
    harness.submit("b", list(range(19)), params(1, ignore_eos=True))
    seen: list[SequenceDelta] = []
    for _ in range(6):
        clock.now += 2
        seen += harness.step().deltas
    assert [(d.request_id, d.phase, d.prefill_done, d.index) for d in seen] == [
        ("a", "prefill", 8, 0), ("a", "prefill", 16, 0), ("a", "decoding", 0, 1), ("a", "decoding", 0, 2),
        ("b", "decoding", 0, 1),
    ]
    first, second = seen[3].timings, seen[4].timings
    assert first and second
    assert (first.queue_s, first.prefill_s, first.decode_s) == (2, 4, 2)
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (20, 0, 2)
    assert (second.queue_s, second.prefill_s, second.decode_s) == (10, 0, 0)
    assert second.cached_tokens == 16


def test_a_preempted_request_says_that_it_waits():
    harness = Harness(num_blocks=8, max_num_seqs=2)
    for name, prompt in (("old", [3] * 8), ("new", [4] * 8)):
        harness.submit(name, prompt, params(20, ignore_eos=True))
    replies = harness.run()
    waiting = [d for output in harness.outputs for d in output.deltas if d.phase == "waiting"]
    assert {d.request_id for d in waiting} == {"new"}
    assert replies["new"].token_ids == expected_ids([4] * 8, params(20, ignore_eos=True))


def test_ids_that_the_tokenizer_lacks_are_never_drawn():
    harness = Harness()
    for seed in range(30):
        harness.submit(str(seed), [3, seed], params(5, temperature=1.5, seed=seed))
    assert max(i for reply in harness.run().values() for i in reply.token_ids) <= END
