"""Conversations on their way into a chat template."""

import json
from typing import Any

import pytest

from inference.text.tool_calls import format_of
from webapp.api.messages import template_messages, template_tools, text_of
from webapp.api.schemas.chat import ChatBody

TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
CALLED = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What time"}, {"type": "text", "text": "is it?"}]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_abc", "type": "function", "function": {"name": "now", "arguments": '{"zone": "UTC"}'}}]},
    {"role": "tool", "tool_call_id": "call_abc", "content": "noon"},
]
NATIVE = format_of("{% if tools %}<tool_call>{% endif %}")
PLAIN = format_of("{{ messages }}")
MISTRAL = format_of("{% if tools %}[TOOL_CALLS]{% endif %}")


def body(messages: list[dict[str, Any]]) -> ChatBody:
    return ChatBody.model_validate({"model": "m", "messages": messages, "tools": [TOOL]})


def test_a_template_that_knows_tools_gets_arguments_as_objects_and_text_as_text() -> None:
    rows = template_messages(body(CALLED).messages, NATIVE, body(CALLED).tools)
    assert [row["role"] for row in rows] == ["system", "user", "assistant", "tool"]
    assert rows[1]["content"] == "What time\nis it?"
    assert rows[2]["tool_calls"][0]["function"] == {"name": "now", "arguments": {"zone": "UTC"}}
    assert rows[3]["tool_call_id"] == rows[2]["tool_calls"][0]["id"] == "call_abc"


def test_a_template_without_tools_reads_them_in_the_text() -> None:
    rows = template_messages(body(CALLED).messages, PLAIN, body(CALLED).tools)
    assert [row["role"] for row in rows] == ["system", "user", "assistant", "user"]
    assert rows[0]["content"].startswith("Be brief.\n\n") and json.dumps("now") in rows[0]["content"]
    assert rows[2]["content"] == '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>'
    assert rows[3]["content"] == "<tool_response>\nnoon\n</tool_response>"
    assert all(set(row) == {"role", "content"} for row in rows)


def test_mistrals_ids_have_nine_letters_on_both_sides() -> None:
    rows = template_messages(body(CALLED).messages, MISTRAL, None)
    made = rows[2]["tool_calls"][0]["id"]
    assert len(made) == 9 and made.isalnum() and rows[3]["tool_call_id"] == made


def test_tools_without_parameters_take_none() -> None:
    tools = body(CALLED).tools
    assert tools is not None
    bare = tools[0].model_copy(update={"function": tools[0].function.model_copy(update={"parameters": None})})
    assert template_tools([bare])[0]["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(("content", "text"), [(None, ""), ("x", "x"), ([], "")])
def test_content_is_text(content: Any, text: str) -> None:
    assert text_of(content) == text
