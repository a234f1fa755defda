"""Frames from a browser are typed or refused, with the field named and the ref kept."""

import json
import uuid

import pytest

from webapp.chat.frames import (
    MAX_FRAME_BYTES,
    BadFrame,
    ErrorFrame,
    GenerationDeltas,
    GenerationWatch,
    MessageSend,
    Ping,
    encode,
    parse,
)

ID = str(uuid.uuid4())
SEND = {"type": "message.send", "ref": "r1", "conversation": ID, "parent": None, "text": "Hello"}

MALFORMED = {
    "empty": ("", ""),
    "binary": (None, ""),
    "not JSON": ("hello", ""),
    "cut off": ('{"type": "ping"', ""),
    "two values": ('{"type": "ping"} {"type": "ping"}', ""),
    "not a number that JSON knows": ('{"type": "ping", "ref": NaN}', ""),
    "half a surrogate pair": (json.dumps(SEND | {"text": "x"}).replace('"x"', '"\\ud800"'), ""),
    "a raw surrogate": ('{"type": "ping\ud800"}', ""),
    "an array": ("[]", ""),
    "a string": ('"ping"', ""),
    "null": ("null", ""),
    "no type": ("{}", "type"),
    "type of the wrong type": ('{"type": 3}', "type"),
    "unknown type": ('{"type": "message.drop"}', "type"),
    "a type of ours": ('{"type": "generation.deltas", "deltas": []}', "type"),
    "text missing": (json.dumps({key: SEND[key] for key in SEND if key != "text"}), "text"),
    "text is a number": (json.dumps(SEND | {"text": 3}), "text"),
    "text is null": (json.dumps(SEND | {"text": None}), "text"),
    "conversation is no id": (json.dumps(SEND | {"conversation": "1"}), "conversation"),
    "conversation is null": (json.dumps(SEND | {"conversation": None}), "conversation"),
    "parent is an object": (json.dumps(SEND | {"parent": {}}), "parent"),
    "parent missing": (json.dumps({key: SEND[key] for key in SEND if key != "parent"}), "parent"),
    "after is negative": (json.dumps({"type": "generation.watch", "generation": ID, "after": -1}), "after"),
    "after is a fraction": (json.dumps({"type": "generation.watch", "generation": ID, "after": 1.5}), "after"),
    "after is huge": (json.dumps({"type": "generation.watch", "generation": ID, "after": 2**63}), "after"),
    "ref is too long": (json.dumps({"type": "ping", "ref": "x" * 65}), "ref"),
    "ref is a list": ('{"type": "ping", "ref": []}', "ref"),
    "nested too deep": ('{"type": "ping", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", ""),
    "too large": (json.dumps(SEND | {"text": "x" * MAX_FRAME_BYTES}), ""),
    "too large in bytes": (json.dumps(SEND | {"text": "é" * (MAX_FRAME_BYTES // 2)}, ensure_ascii=False), ""),
}


@pytest.mark.parametrize(("text", "field"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_frame_is_refused_with_its_field(text: str | None, field: str) -> None:
    with pytest.raises(BadFrame) as caught:
        parse(text)
    assert caught.value.field == field
    assert caught.value.message


def test_the_ref_of_a_malformed_frame_is_kept() -> None:
    with pytest.raises(BadFrame) as caught:
        parse(json.dumps(SEND | {"text": 3}))
    assert caught.value.ref == "r1"


def test_frames_become_typed_values() -> None:
    assert parse(json.dumps(SEND)) == MessageSend(ref="r1", conversation=uuid.UUID(ID), parent=None, text="Hello")
    assert parse(json.dumps({"type": "generation.watch", "generation": ID})) == GenerationWatch(
        generation=uuid.UUID(ID), after=0)
    assert parse('{"type": "ping", "later": "unknown fields are let be"}') == Ping()


def test_frames_to_the_browser_are_plain_json() -> None:
    delta = {"generation": ID, "first": 1, "last": 2, "text": "</script>é"}
    assert json.loads(encode(GenerationDeltas(deltas=[delta]))) == {"type": "generation.deltas", "deltas": [delta]}
    assert json.loads(encode(ErrorFrame(code="refused", message="No.", field="text", ref="a"))) == {
        "type": "error", "code": "refused", "message": "No.", "field": "text", "ref": "a"}
