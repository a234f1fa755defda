"""Turns a request's conversation into what a chat template reads, for the way in which its model writes tool calls."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from inference.text.tool_calls import ToolFormat
from webapp.api.schemas.chat import AssistantMessage, Content, Message, SystemMessage, Tool, ToolCall, ToolMessage

MISTRAL_ID_CHARS = 9

_HERMES = """You are a function calling AI model. You are provided with function signatures within <tools></tools> XML \
tags. You may call one or more functions to assist with the user query. Don't make assumptions about what values to \
plug into functions. Here are the available tools: <tools> {tools} </tools>
For each function call return a json object with function name and arguments within <tool_call></tool_call> XML tags \
as follows:
<tool_call>
{{"name": <function-name>, "arguments": <args-dict>}}
</tool_call>"""
"""How Hermes 2 Pro describes tools, for models whose template doesn't. Source: NousResearch/Hermes-Function-Calling."""


def template_messages(messages: Sequence[Message], form: ToolFormat,
                      tools: Sequence[Tool] | None) -> list[dict[str, Any]]:
    """The conversation as the template takes it: plain text, arguments as objects, `developer` as `system`."""
    rows = [_row(message, form) for message in messages]
    if not form.native and tools:
        rows = _with_system(rows, _HERMES.format(tools=" ".join(json.dumps(row) for row in template_tools(tools))))
    return rows if form.native else [_spoken(row) for row in rows]


def template_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The tools in the form that templates take."""
    return [{"type": "function", "function": {
        "name": tool.function.name, "description": tool.function.description or "",
        "parameters": tool.function.parameters or {"type": "object", "properties": {}}}} for tool in tools]


def text_of(content: Content | None) -> str:
    """A message's text; parts stand on lines of their own."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part.text for part in content)


def _row(message: Message, form: ToolFormat) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": text_of(message.content)}
    if message.role == "developer":
        row["role"] = "system"
    if message.name and not isinstance(message, SystemMessage):
        row["name"] = message.name
    if isinstance(message, AssistantMessage):
        if message.reasoning_content:
            row["reasoning_content"] = message.reasoning_content
        if message.tool_calls:
            row["tool_calls"] = [_call_row(call, form) for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        row["tool_call_id"] = _call_id(message.tool_call_id, form)
    return row


def _call_row(call: ToolCall, form: ToolFormat) -> dict[str, Any]:
    return {"id": _call_id(call.id, form), "type": "function",
            "function": {"name": call.function.name, "arguments": json.loads(call.function.arguments)}}


def _call_id(given: str, form: ToolFormat) -> str:
    """Mistral's templates insist on nine letters and digits; others take what the client sends."""
    if not form.family.startswith("mistral") or (len(given) == MISTRAL_ID_CHARS and given.isalnum()):
        return given
    return hashlib.sha256(given.encode()).hexdigest()[:MISTRAL_ID_CHARS]


def _with_system(rows: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    if rows and rows[0]["role"] == "system":
        return [{**rows[0], "content": f"{rows[0]['content']}\n\n{text}"}, *rows[1:]]
    return [{"role": "system", "content": text}, *rows]


def _spoken(row: dict[str, Any]) -> dict[str, Any]:
    """Write calls and their results into the text, for a template that has no place for them."""
    if row["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{row['content']}\n</tool_response>"}
    calls = [f"<tool_call>\n{json.dumps(call['function'])}\n</tool_call>" for call in row.get("tool_calls", ())]
    return {"role": row["role"], "content": "\n".join(filter(None, [row["content"], *calls]))}
