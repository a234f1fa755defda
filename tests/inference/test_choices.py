"""n replies to one prompt: n requests with seeds of their own, which anybody can compute again."""

from hashlib import blake2b

import pytest

from inference.choices import MAX_CHOICES, choice_seed, expand_choices
from inference.protocol import Submit
from inference.spec import SamplingParams, SpecError


def submit(temperature: float = 1.0, **values) -> Submit:
    return Submit(request_id="a", prompt_ids=[1, 2], priority=1,
                  params=SamplingParams(max_tokens=5, temperature=temperature, top_k=7, seed=123), **values)


def test_each_choice_is_a_request_with_its_own_id_and_seed():
    choices = expand_choices(submit(), 4)
    assert [choice.request_id for choice in choices] == ["a/0", "a/1", "a/2", "a/3"]
    assert len({choice.params.seed for choice in choices}) == 4
    assert {(choice.priority, choice.params.top_k, tuple(choice.prompt_ids)) for choice in choices} == {(1, 7, (1, 2))}
    assert choices == expand_choices(submit(), 4)
    assert choices[:2] == expand_choices(submit(), 2), "a choice doesn't depend on how many there are"


def test_the_first_choice_is_what_the_seed_gives_alone():
    assert expand_choices(submit(), 3)[0].params == submit().params


def test_one_choice_is_the_request_itself_also_when_greedy():
    assert expand_choices(submit(0.0), 1) == [submit(0.0)]


def test_the_seed_is_the_documented_hash_and_fits():
    digest = blake2b((123).to_bytes(8, "big") + (2).to_bytes(8, "big"), digest_size=8, person=b"parley-choice").digest()
    assert choice_seed(123, 2) == int.from_bytes(digest, "big") >> 1
    assert all(0 <= choice_seed(2**63 - 1, index) < 2**63 for index in range(MAX_CHOICES))


REFUSED = [
    ("greedy", submit(0.0), 2, "temperature 0"),
    ("greedy but for rounding", submit(5e-5), 2, "temperature 0"),
    ("none", submit(), 0, "between 1 and"),
    ("too many", submit(), MAX_CHOICES + 1, "between 1 and"),
    ("not a number", submit(), True, "between 1 and"),
    ("resumed", submit(output_ids=[4]), 2, "resumed"),
]


@pytest.mark.parametrize(("what", "wanted", "n", "reason"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_cannot_be_multiplied_is_refused(what, wanted, n, reason):
    with pytest.raises(SpecError, match=reason) as caught:
        expand_choices(wanted, n)
    assert caught.value.field == "n"
