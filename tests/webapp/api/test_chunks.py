"""Every chunk of recorded streams, read by the client library's own types in strict mode."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from tests.webapp.api.conftest import Program

pytestmark = pytest.mark.timeout(400)

TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {},
                                                                       "additionalProperties": False}}}
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
          "additionalProperties": False}
REQUESTS: list[dict[str, Any]] = [
    {}, {"temperature": 1.0}, {"temperature": 1.0, "seed": 3}, {"n": 3, "temperature": 1.0}, {"stop": ["."]},
    {"stop": "a"}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2}, {"max_tokens": 1},
    {"stream_options": {"include_usage": True}},
    {"n": 2, "temperature": 0.5, "stream_options": {"include_usage": True}},
    {"presence_penalty": 1.0}, {"frequency_penalty": -1.0}, {"min_p": 0.2, "temperature": 1.0}, {"top_k": 3},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA, "strict": True}}},
    {"response_format": {"type": "json_object"}}, {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "now"}}, "max_tokens": 60},
    {"tools": [TOOL], "logprobs": True},
]


def chunks_of(program: Program, body: dict[str, Any]) -> list[dict[str, Any]]:
    with program.http as client, client.stream("POST", "v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        events = "".join(response.iter_text()).split("\n\n")
    assert events.pop() == "" and events.pop() == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events if not event.startswith(":")]


@pytest.mark.parametrize("more", REQUESTS, ids=lambda more: "-".join(more) or "plain")
def test_every_chunk_is_what_the_client_library_expects(program: Program, more: dict[str, Any]) -> None:
    chunks = chunks_of(program, program.chat("Say hi.", max_tokens=5) | {"stream": True} | more)
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(json.dumps(chunk), strict=True)
        assert all(set(choice) == {"index", "delta", "logprobs", "finish_reason"} for choice in chunk["choices"])
    assert len({chunk["id"] for chunk in chunks}) == 1
    wants_usage = "stream_options" in more
    if wants_usage:
        last = chunks.pop()
        assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0
    assert all(("usage" in chunk) == wants_usage for chunk in chunks)
    for index in range(more.get("n", 1)):
        own = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert [choice["finish_reason"] is not None for choice in own] == [False] * (len(own) - 1) + [True]
