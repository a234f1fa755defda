"""n replies to one prompt: the same sampling with seeds of their own, which anybody can compute again."""

from hashlib import blake2b

import pytest

from inference.choices import MAX_CHOICES, choice_params, choice_seed
from inference.spec import SamplingParams, SpecError


def params(temperature: float = 1.0) -> SamplingParams:
    return SamplingParams(max_tokens=5, temperature=temperature, top_k=7, seed=123)


def test_each_choice_has_a_seed_of_its_own_and_the_same_sampling():
    choices = choice_params(params(), 4)
    assert len({choice.seed for choice in choices}) == 4
    assert {(choice.max_tokens, choice.temperature, choice.top_k) for choice in choices} == {(5, 1.0, 7)}
    assert choices == choice_params(params(), 4)
    assert choices[:2] == choice_params(params(), 2), "a choice doesn't depend on how many there are"


def test_the_first_choice_is_what_the_seed_gives_alone():
    assert choice_params(params(), 3)[0] == params()


def test_one_choice_is_the_request_itself_also_when_greedy():
    assert choice_params(params(0.0), 1) == [params(0.0)]


def test_the_seed_is_the_documented_hash_and_fits():
    digest = blake2b((123).to_bytes(8, "big") + (2).to_bytes(8, "big"), digest_size=8, person=b"parley-choice").digest()
    assert choice_seed(123, 2) == int.from_bytes(digest, "big") >> 1
    assert all(0 <= choice_seed(2**63 - 1, index) < 2**63 for index in range(MAX_CHOICES))


REFUSED = [
    ("greedy", params(0.0), 2, "temperature 0"),
    ("greedy but for rounding", params(5e-5), 2, "temperature 0"),
    ("none", params(), 0, "between 1 and"),
    ("too many", params(), MAX_CHOICES + 1, "between 1 and"),
    ("not a number", params(), True, "between 1 and"),
]


@pytest.mark.parametrize(("what", "wanted", "n", "reason"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_cannot_be_multiplied_is_refused(what, wanted, n, reason):
    with pytest.raises(SpecError, match=reason) as caught:
        choice_params(wanted, n)
    assert caught.value.field == "n"
