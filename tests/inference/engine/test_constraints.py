"""Constrained replies: masks are exactly what the constraint allows, and a reply ends where it is whole."""

import json
import re

import numpy as np
import pytest

from inference.engine.constraints import ConstraintError, Constraints
from inference.protocol import HEADER, Submit, decode_client_frame, encode
from inference.spec import Constraint, SamplingParams, SpecError
from tests.inference.engine.context_model import END, Harness, LoopingRunner, byte_tokenizer

POINT = {"type": "object", "properties": {"x": {"type": "integer", "minimum": -99, "maximum": 99},
                                          "kind": {"enum": ["dot", "ring"]},
                                          "on": {"type": "boolean"}},
         "required": ["x", "kind", "on"], "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module")
def constraints() -> Constraints:
    return Constraints(byte_tokenizer(), vocabulary=END + 1, end_ids=[END])


def is_point(text: str) -> bool:
    value = json.loads(text)
    return (list(value) == ["x", "kind", "on"] and type(value["x"]) is int and -99 <= value["x"] <= 99
            and value["kind"] in ("dot", "ring") and type(value["on"]) is bool)


def ids_of(text: str) -> list[int]:
    ids: list[int] = byte_tokenizer().encode(text).ids
    return ids


def allowed(state) -> set[str]:
    """The next bytes that a state allows; "end" is the end id."""
    logits = state.allow(np.zeros(END + 1, np.float32))
    tokenizer = byte_tokenizer()
    return {"end" if i == END else tokenizer.decode([int(i)]) for i in np.flatnonzero(np.isfinite(logits))}


def test_a_mask_allows_what_the_regex_allows_and_the_end_where_it_matches(constraints):
    state = constraints.start(Constraint(kind="regex", text="ab?[0-9]*"))
    assert allowed(state) == {"a"}
    state.accept(ids_of("a")[0])
    assert allowed(state) == {"b", "end", *"0123456789"}
    state.accept(ids_of("b")[0])
    assert allowed(state) == {"end", *"0123456789"}
    assert not state.complete


def test_a_choice_is_complete_once_nothing_can_follow(constraints):
    state = constraints.start(Constraint(kind="choice", text='["no", "nod"]'))
    for char, complete in (("n", False), ("o", False), ("d", True)):
        assert not state.complete
        state.accept(ids_of(char)[0])
        assert state.complete == complete


def test_the_mask_leaves_the_logits_themselves_as_they_are(constraints):
    logits = np.arange(END + 1, dtype=np.float32)
    masked = constraints.start(Constraint(kind="choice", text='["no"]')).allow(logits)
    assert (logits == np.arange(END + 1)).all()
    assert masked[ids_of("n")[0]] == logits[ids_of("n")[0]]


def test_a_token_that_does_not_fit_is_an_error(constraints):
    with pytest.raises(ConstraintError):
        constraints.start(Constraint(kind="choice", text='["no"]')).accept(ids_of("x")[0])


def test_replies_with_one_constraint_do_not_share_their_state(constraints):
    first = constraints.start(Constraint(kind="choice", text='["ab"]'))
    first.accept(ids_of("a")[0])
    assert allowed(constraints.start(Constraint(kind="choice", text='["ab"]'))) == {"a"}
    assert allowed(first) == {"b"}


def test_a_schema_that_nothing_can_fit_is_refused(constraints):
    with pytest.raises(SpecError, match="constraint: the json_schema can't be used"):
        constraints.start(Constraint(kind="json_schema", text='{"$defs": {"a": {"$ref": "#/$defs/a"}}, '
                                                              '"$ref": "#/$defs/a"}'))


def test_a_model_without_end_ids_refuses_constraints():
    constraints = Constraints(byte_tokenizer(), vocabulary=END + 1, end_ids=[])
    constraints.prepare()
    with pytest.raises(SpecError, match="constraint: .* without an end id"):
        constraints.start(Constraint(kind="choice", text='["a"]'))


# Through the loop


def constrained(kind: str, text: str, **values) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 80, "temperature": 1.5, **values},
                          constraint=Constraint(kind=kind, text=text))


@pytest.mark.parametrize("speculation", [False, True])
def test_every_kind_holds_for_requests_side_by_side(speculation):
    harness = Harness(num_blocks=400, max_num_batched_tokens=64, speculation=speculation)
    cases = {
        "schema": (constrained("json_schema", json.dumps(POINT)), is_point),
        "regex": (constrained("regex", "[a-c]{3}-[0-9]{2}"), re.compile("[a-c]{3}-[0-9]{2}").fullmatch),
        "choice": (constrained("choice", '["yes", "no", "né"]'), {"yes", "no", "né"}.__contains__),
        "lark": (constrained("grammar", 'start: "(" start ")" | "x"', seed=5), re.compile(r"\(*x\)*").fullmatch),
        "gbnf": (constrained("grammar", 'root ::= [a-z] [0-9] "."'), re.compile(r"[a-z][0-9]\.").fullmatch),
    }
    for name, (chosen, _) in cases.items():
        harness.submit(name, [7, 8, 9], chosen)
    harness.submit("free", [7, 8, 9], SamplingParams(max_tokens=20, ignore_eos=True))
    replies = harness.run()
    for name, (_, fits) in cases.items():
        assert replies[name].finish_reason == "stop", name
        assert fits(replies[name].text), (name, replies[name].text)
    alone = Harness()
    alone.submit("free", [7, 8, 9], SamplingParams(max_tokens=20, ignore_eos=True))
    assert replies["free"] == alone.run()["free"]


def test_a_json_object_parses():
    harness = Harness(max_num_batched_tokens=64)
    for seed in range(20):
        harness.submit(str(seed), [7, seed], constrained("json_object", "", seed=seed, max_tokens=180))
    ended = [reply for reply in harness.run().values() if reply.finish_reason == "stop"]
    assert len(ended) > 5
    assert all(isinstance(json.loads(reply.text), dict) for reply in ended)


@pytest.mark.parametrize("k", [0, 1, 5, 17, 30])
def test_a_constrained_reply_can_be_resumed_and_preempted(k):
    chosen = constrained("json_schema", json.dumps(POINT), seed=11)
    whole = Harness()
    whole.submit("a", [1, 2, 3], chosen)
    undisturbed = whole.run()["a"]
    assert is_point(undisturbed.text)
    tight = Harness(num_blocks=26, speculation=True)
    k = min(k, len(undisturbed.token_ids))
    for other in range(3):
        tight.submit(str(other), [4, other], SamplingParams(max_tokens=70, temperature=0.0, ignore_eos=True))
    tight.submit("a", [1, 2, 3], chosen, output_ids=undisturbed.token_ids[:k])
    reply = tight.run()["a"]
    assert reply.token_ids == undisturbed.token_ids
    assert reply.texts == undisturbed.texts[k:]


def test_output_tokens_that_do_not_fit_are_refused_and_nothing_stays():
    harness = Harness()
    with pytest.raises(SpecError, match="output_ids: token 2 does not fit the constraint"):
        harness.submit("a", [1], constrained("choice", '["no"]'), output_ids=[ids_of("n")[0], ids_of("x")[0]])
    assert not harness.loop.has_work
    harness.submit("a", [1], constrained("choice", '["no"]'))
    assert harness.run()["a"].text == "no"


def test_what_can_t_be_compiled_is_refused_before_it_is_queued():
    harness = Harness()
    with pytest.raises(SpecError, match="constraint: the regex can't be used: .*unclosed group"):
        harness.submit("a", [1], constrained("regex", "("))
    assert not harness.loop.has_work


def test_max_tokens_cut_a_constrained_reply_too():
    harness = Harness()
    harness.submit("a", [1], constrained("regex", "[a-z]{50}", max_tokens=7))
    reply = harness.run()["a"]
    assert (reply.finish_reason, len(reply.text)) == ("length", 7)


def test_a_reply_ends_when_it_is_whole_whatever_min_tokens_says():
    harness = Harness()
    harness.submit("a", [1], constrained("choice", '["no"]', min_tokens=10))
    reply = harness.run()["a"]
    assert (reply.text, reply.finish_reason) == ("no", "stop")


def test_constraints_penalties_and_biases_work_together():
    dot = ids_of(".")[0]
    harness = Harness(runner=LoopingRunner, speculation=True)
    harness.submit("a", [1, 2, 1, 2], constrained("regex", r"[a-e]*\.", logit_bias=((dot, 3.0),), min_tokens=5,
                                                  frequency_penalty=1.0))
    reply = harness.run()["a"]
    assert re.fullmatch(r"[a-e]*\.", reply.text) or reply.finish_reason == "length"


def test_a_constraint_crosses_the_wire():
    submit = Submit(request_id="a", prompt_ids=[1], params=constrained("regex", "é+"))
    assert decode_client_frame(encode(submit)[HEADER.size:]) == submit
