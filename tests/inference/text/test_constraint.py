"""What a constraint may be, and in which words another one is refused."""

import json
import re

import pytest

from inference.spec import MAX_CONSTRAINT_BYTES, Constraint, SamplingParams, SpecError
from inference.text.constraint import MAX_CHOICES, check_constraint

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NESTED: dict = {"type": "string"}
for _ in range(900):
    NESTED = {"type": "array", "items": NESTED}

TAKEN = [
    ("json_schema", json.dumps(PERSON)),
    ("json_schema", json.dumps({"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
                                "$ref": "#/$defs/node"})),
    ("json_object", ""),
    ("regex", r"\d{4}-\d\d-\d\d"),
    ("choice", '["yes", "no", "né", "\\"quoted\\"", "two\\nlines"]'),
    ("grammar", 'start: "a" start | "b"'),
    ("grammar", 'root ::= "a" root | "b"'),
]

REFUSED = [
    ("json_schema", '{"type": "object"', "can't be read.*delimiter"),
    ("json_schema", "[1]", "not a JSON object"),
    ("json_schema", '{"type": "nope"}', "nope"),
    ("json_schema", '{"type": "array", "uniqueItems": true}', "uniqueItems"),
    ("json_schema", '{"$ref": "https://example.org/schema"}', "https://example.org/schema"),
    ("json_schema", '{"$ref": "file:///etc/passwd"}', "file:///etc/passwd"),
    ("json_schema", "[" * 30_000, "nested too deep"),
    ("json_schema", json.dumps(NESTED), "recursion limit"),
    ("regex", "(", "unclosed group"),
    ("regex", "(?=x)a", "look-ahead"),
    ("regex", "(" * 30_000 + ")" * 30_000, "can't be used"),
    ("choice", "[]", "has 0 strings"),
    ("choice", '[""]', "none of them empty"),
    ("choice", '{"a": 1}', "not a JSON list"),
    ("choice", json.dumps([str(i) for i in range(MAX_CHOICES + 1)]), "1,001 strings"),
    ("grammar", "start: foo", 'unknown name: "foo"'),
    ("grammar", "{{{", "can't be read"),
    ("grammar", "root ::= a", "'a' not found"),
    ("grammar", "root ::= " + "(" * 20_000, "nested too deep"),
    ("grammar", "", "can't be"),
]


@pytest.mark.parametrize(("kind", "text"), TAKEN)
def test_what_can_be_compiled_is_taken(kind, text):
    check_constraint(Constraint(kind=kind, text=text))


@pytest.mark.parametrize(("kind", "text", "reason"), REFUSED, ids=[f"{kind} {text[:20]}" for kind, text, _ in REFUSED])
def test_what_can_t_be_compiled_is_refused_with_the_reason(kind, text, reason):
    with pytest.raises(SpecError) as caught:
        check_constraint(Constraint(kind=kind, text=text))
    assert caught.value.field == "constraint"
    assert kind in caught.value.message
    assert re.search(reason, caught.value.message), caught.value.message
    assert len(caught.value.message) < 700


def test_a_schema_of_a_megabyte_is_refused_before_it_is_read():
    with pytest.raises(SpecError, match="constraint: has 1,000,000 bytes, and at most 65,536"):
        Constraint(kind="json_schema", text="x" * 1_000_000)
    assert MAX_CONSTRAINT_BYTES == 65_536
    with pytest.raises(SpecError, match="constraint: has"):  # bytes count, not characters
        Constraint(kind="regex", text="é" * 40_000)


def test_other_values_are_refused_by_name():
    with pytest.raises(SpecError, match="constraint: the kind must be one of"):
        Constraint(kind="xml")
    with pytest.raises(SpecError, match="constraint: must be a kind and a text"):
        SamplingParams(max_tokens=1, constraint={"kind": "json_object"})
    with pytest.raises(SpecError, match="ignore_eos: can't be set together with a constraint"):
        SamplingParams(max_tokens=1, constraint=Constraint(kind="json_object"), ignore_eos=True)
