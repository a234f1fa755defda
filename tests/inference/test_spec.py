"""What may be asked for: every parameter that makes no sense is refused with its name."""

import dataclasses
import math

import msgspec
import pytest

from inference.spec import MAX_LOGIT_BIASES, SamplingParams, SpecError

NUMBERS = {
    "temperature": (-0.1, 101), "top_p": (-0.01, 1.01), "min_p": (-0.01, 1.01), "repetition_penalty": (0, 101),
    "presence_penalty": (-2.01, 2.01), "frequency_penalty": (-2.01, 2.01),
}
WHOLE = {
    "top_k": (-2, 1.5), "seed": (-1, 2**63, 0.5), "max_tokens": (0, -1, 1.5), "min_tokens": (-1, 6, 1.5),
    "logprobs": (-1, 21, 1.5), "prompt_logprobs": (-1, 21, 1.5),
}
WRONG = [
    *((field, value) for field, values in NUMBERS.items() for value in (*values, math.nan, math.inf, True, "1", None)),
    *((field, value) for field, values in WHOLE.items() for value in (*values, math.nan, True, "1")),
    ("stop", ("",)), ("stop", ("x" * 257,)), ("stop", ("x",) * 17), ("stop", (5,)),
    ("stop_token_ids", (1.5,)), ("stop_token_ids", (True,)), ("stop_token_ids", tuple(range(257))),
    ("logit_bias", ((1, math.nan),)), ("logit_bias", ((1, 101),)), ("logit_bias", ((1, -101),)),
    ("logit_bias", ((1, 1.0), (1, 2.0))), ("logit_bias", ((1.5, 1.0),)), ("logit_bias", ((1,),)),
    ("logit_bias", {1: 2}),
    ("logit_bias", tuple((i, 1.0) for i in range(MAX_LOGIT_BIASES + 1))),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{field}={str(value)[:20]}" for field, value in WRONG])
def test_a_value_that_makes_no_sense_is_refused_with_its_field(field, value):
    with pytest.raises(SpecError) as caught:
        SamplingParams(**{"max_tokens": 5, field: value})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


EDGES = [
    {"top_p": 0}, {"top_p": 1}, {"top_k": 0}, {"top_k": -1}, {"temperature": 0}, {"temperature": 100}, {"min_p": 1},
    {"seed": 2**63 - 1}, {"min_tokens": 5}, {"logprobs": 0}, {"logprobs": 20}, {"presence_penalty": -2},
    {"logit_bias": ((0, 100), (1, -100.0))}, {"repetition_penalty": 0.01}, {"stop": ("x" * 256,) * 16},
]


@pytest.mark.parametrize("values", EDGES, ids=lambda values: str(values)[:40])
def test_the_edges_are_taken(values):
    SamplingParams(max_tokens=5, **values)


def test_a_temperature_below_a_ten_thousandth_is_greedy():
    assert [SamplingParams(max_tokens=1, temperature=t).greedy for t in (0, 9.9e-5, 1e-4)] == [True, True, False]


def test_parameters_survive_the_json_of_a_database_row():
    params = SamplingParams(max_tokens=9, logit_bias=((5, 1.5), (7, -2.0)), stop=("a", "b"), stop_token_ids=(3,),
                            logprobs=4, seed=2**63 - 1)
    stored = msgspec.json.decode(msgspec.json.encode(dataclasses.asdict(params)))
    assert msgspec.convert(stored, SamplingParams) == params
