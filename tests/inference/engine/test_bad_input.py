"""Bad input of every kind: refused before it is queued, with a field and a reason, and no other request notices.

Templates that loop are in text/test_chat_template.py, clients that go away in test_server.py, and NaN logits in
test_loop.py and test_prompt_logprobs.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from inference.choices import choice_params
from inference.spec import Constraint, SpecError
from tests.inference.engine.context_model import VOCABULARY, Harness
from tests.inference.engine.test_loop import expected_ids, params

NEIGHBOUR = [4, 5, 6]


@dataclass(frozen=True)
class Bad:
    """What is wrong, how a client sends it, and the field and reason that it must hear."""

    what: str
    send: Callable[[Harness], object]
    field: str
    reason: str


def asked(**values) -> Callable[[Harness], object]:
    return lambda harness: harness.submit("bad", [3], params(**values))


def prompted(*prompt: int) -> Callable[[Harness], object]:
    return lambda harness: harness.submit("bad", list(prompt), params())


BAD = [
    Bad("an empty prompt", prompted(), "prompt_ids", "empty"),
    Bad("a prompt as long as the context", prompted(*[3] * 200), "prompt_ids", "200 tokens.*at most 200"),
    Bad("a prompt past the context", prompted(*[3] * 5000), "prompt_ids", "5000 tokens.*at most 200"),
    Bad("a prompt id past the vocabulary", prompted(3, VOCABULARY), "prompt_ids", f"{VOCABULARY} is outside"),
    Bad("a negative prompt id", prompted(-1), "prompt_ids", "-1 is outside"),
    Bad("a biased id past the vocabulary", asked(logit_bias=((VOCABULARY, 1.0),)), "logit_bias", "outside"),
    Bad("a negative biased id", asked(logit_bias=((-1, 1.0),)), "logit_bias", "-1 is outside"),
    Bad("a stop id past the vocabulary", asked(stop_token_ids=(3, 2**40)), "stop_token_ids", "outside"),
    Bad("a negative stop id", asked(stop_token_ids=(-5,)), "stop_token_ids", "-5 is outside"),
    Bad("a negative temperature", asked(temperature=-1), "temperature", "between 0 and 100"),
    Bad("a temperature that is no number", asked(temperature=math.nan), "temperature", "between"),
    Bad("a top_p that is no number", asked(top_p=math.nan), "top_p", "between 0 and 1"),
    Bad("a negative penalty", asked(repetition_penalty=-1.0), "repetition_penalty", "between"),
    Bad("a penalty that is no number", asked(frequency_penalty=math.nan), "frequency_penalty", "between -2 and 2"),
    Bad("a bias that is no number", asked(logit_bias=((3, math.nan),)), "logit_bias", "between -100 and 100"),
    Bad("no tokens at all", asked(max_tokens=0), "max_tokens", "at least 1"),
    Bad("more tokens at least than at most", asked(max_tokens=3, min_tokens=4), "min_tokens", "between 0 and max"),
    Bad("several greedy replies",
        lambda harness: choice_params(params(), 2), "n", "must be 1"),
    Bad("a schema of 1 MB", lambda harness: asked(constraint=Constraint(kind="json_schema", text=" " * 2**20))(harness),
        "constraint", "1,048,576 bytes"),
]


@pytest.mark.parametrize("bad", BAD, ids=[bad.what for bad in BAD])
def test_it_is_refused_with_a_reason_and_its_neighbour_goes_on(bad: Bad):
    harness, chosen = Harness(), params(20, temperature=0.9, seed=3, ignore_eos=True)
    harness.submit("neighbour", NEIGHBOUR, chosen)
    for _ in range(3):
        harness.step()
    before = harness.loop.stats()
    with pytest.raises(SpecError, match=bad.reason) as caught:
        bad.send(harness)
    assert caught.value.field == bad.field
    assert harness.loop.stats() == before
    assert harness.run()["neighbour"].token_ids == expected_ids(NEIGHBOUR, chosen)


def test_a_request_that_can_never_fit_is_refused_at_once():
    harness = Harness(num_blocks=20)
    with pytest.raises(SpecError, match="150 tokens.*only 80"):
        harness.submit("bad", [3] * 150, params())
    assert not harness.loop.has_work


def test_more_tokens_than_fit_are_lowered_to_what_fits():
    harness = Harness()
    harness.submit("a", [3] * 190, params(10**9, ignore_eos=True))
    reply = harness.run()["a"]
    assert (len(reply.token_ids), reply.finish_reason) == (10, "length")


def test_a_cancel_for_an_unknown_request_is_ignored():
    harness = Harness()
    harness.submit("a", NEIGHBOUR, params())
    harness.loop.cancel("nobody")
    assert harness.run()["a"].token_ids == expected_ids(NEIGHBOUR, params())
