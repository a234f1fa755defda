"""Where pydantic found an error, written as a place in the request."""

from typing import Any

import pytest

from webapp.api.errors import invalid


@pytest.mark.parametrize(("loc", "kind", "body", "param"), [
    (("stop", "list[str]", 1), "string_type", {"stop": ["a", 5]}, "stop[1]"),
    (("messages", 0, "user", "content"), "missing", {"messages": [{"role": "user"}]}, "messages[0].content"),
    (("messages", 0, "assistant"), "value_error", {"messages": [{"role": "assistant"}]}, "messages[0]"),
    (("input", "str"), "string_type", {"input": {"a": 1}}, "input"),
    (("wibble",), "extra_forbidden", {"wibble": 1}, "wibble"),
    ((), "model_type", [], None),
])
def test_a_place_is_written_without_names_of_types(loc: tuple[Any, ...], kind: str, body: Any,
                                                   param: str | None) -> None:
    error = invalid([{"loc": ("body", "body", *loc), "type": kind, "msg": "is wrong"}], body)
    assert (error.status, error.param) == (400, param)


def test_of_several_errors_the_deepest_is_told() -> None:
    body = {"messages": [{"content": [{"type": "image"}]}]}
    errors = [{"loc": ("body", "body", "messages", 0, "content", "str"), "type": "string_type", "msg": "a"},
              {"loc": ("body", "body", "messages", 0, "content", "list[TextPart]", 0, "type"), "type": "literal_error",
               "msg": "b"}]
    assert invalid(errors, body).param == "messages[0].content[0].type"
