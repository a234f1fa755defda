"""What is refused and how: OpenAI's error shape, with the field that it is about."""

from typing import Any

import httpx
import pytest

from tests.webapp.api.conftest import CHAT, EMBED, Program, error_of

pytestmark = pytest.mark.timeout(400)

USER = {"role": "user", "content": "x"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def called(arguments: str) -> list[dict[str, Any]]:
    call = CALL | {"function": {"name": "f", "arguments": arguments}}
    return [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]


def schema(found: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "r", "schema": found}}


CHAT_TABLE: list[tuple[dict[str, Any], int, str | None, str]] = [
    ({"model": "nothing"}, 404, "model", "model_not_found"),
    ({"model": "smollm2:99"}, 404, "model", "model_not_found"),
    ({"model": "smollm2@nowhere"}, 404, "model", "model_not_found"),
    ({"model": "smollm2+nothing"}, 404, "model", "model_not_found"),
    ({"model": EMBED}, 400, "model", "model_kind"),
    ({"model": 7}, 400, "model", "invalid_type"),
    ({"messages": []}, 400, "messages", "invalid_value"),
    ({"messages": "hello"}, 400, "messages", "invalid_type"),
    ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0]", "invalid_value"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "missing_required_parameter"),
    ({"messages": [USER, {"role": "user", "content": 5}]}, 400, "messages[1].content", "invalid_type"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400,
     "messages[0].content[0].type", "invalid_value"),
    ({"messages": [USER, {"role": "tool", "content": "x"}]}, 400, "messages[1].tool_call_id",
     "missing_required_parameter"),
    ({"messages": [USER, {"role": "assistant"}]}, 400, "messages[1]", "invalid_value"),
    ({"messages": called("{bad")}, 400, "messages[1].tool_calls[0].function.arguments", "invalid_value"),
    ({"messages": called("[1]")}, 400, "messages[1].tool_calls[0].function.arguments", "invalid_value"),
    ({"messages": [{"role": "user", "content": "a " * 9000}]}, 400, "messages", "context_length_exceeded"),
    ({"n": 0}, 400, "n", "invalid_value"),
    ({"n": 129}, 400, "n", "invalid_value"),
    ({"n": 2}, 400, "n", "invalid_value"),  # at temperature 0
    ({"n": 2, "temperature": 5e-5}, 400, "n", "invalid_value"),  # greedy too: four equal replies would be a surprise
    ({"n": "2"}, 400, "n", "invalid_type"),
    ({"n": True}, 400, "n", "invalid_type"),
    ({"temperature": -0.1}, 400, "temperature", "invalid_value"),
    ({"temperature": 2.1}, 400, "temperature", "invalid_value"),
    ({"temperature": "hot"}, 400, "temperature", "invalid_type"),
    ({"top_p": 0}, 400, "top_p", "invalid_value"),
    ({"max_tokens": 0}, 400, "max_tokens", "invalid_value"),
    ({"max_tokens": 1.5}, 400, "max_tokens", "invalid_type"),
    ({"max_completion_tokens": 5}, 400, "max_completion_tokens", "invalid_value"),  # beside max_tokens
    ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop", "invalid_value"),
    ({"stop": ""}, 400, "stop", "invalid_value"),
    ({"top_logprobs": 21, "logprobs": True}, 400, "top_logprobs", "invalid_value"),
    ({"top_logprobs": 2}, 400, "top_logprobs", "invalid_value"),
    ({"logit_bias": {"x": 1}}, 400, "logit_bias.x", "invalid_value"),
    ({"logit_bias": {"5": 101}}, 400, "logit_bias.5", "invalid_value"),
    ({"logit_bias": {"999999": 1}}, 400, "logit_bias", "invalid_value"),
    ({"stop_token_ids": [-1]}, 400, "stop_token_ids", "invalid_value"),
    ({"seed": 2**64}, 400, "seed", "invalid_value"),
    ({"stream_options": {"include_usage": True}}, 400, None, "invalid_value"),
    ({"response_format": {"type": "yaml"}}, 400, "response_format", "invalid_value"),
    ({"response_format": schema({"type": "nonsense"})}, 400, "response_format", "invalid_schema"),
    ({"response_format": schema("x")}, 400, "response_format.json_schema.schema", "invalid_type"),
    ({"response_format": schema({"$ref": "https://example.org/x"})}, 400, "response_format", "invalid_schema"),
    ({"response_format": {"type": "json_object"}, "ignore_eos": True}, 400, "ignore_eos", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 400, "tools[0].function.name", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}}]}, 400, "tools",
     "invalid_schema"),
    ({"tools": [TOOL], "response_format": {"type": "json_object"}}, 400, "response_format", "unsupported_parameter"),
    ({"tool_choice": "required"}, 400, "tool_choice", "invalid_value"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, 400, "tool_choice",
     "invalid_value"),
    ({"functions": []}, 400, "functions", "unsupported_parameter"),
    ({"audio": {}}, 400, "audio", "unsupported_parameter"),
    ({"store": True}, 400, "store", "invalid_value"),
    ({"wibble": 1}, 400, "wibble", "unsupported_parameter"),
]


@pytest.mark.parametrize(("more", "status", "param", "code"), CHAT_TABLE, ids=lambda value: str(value)[:60])
def test_a_chat_request_is_refused_by_field(program: Program, more: dict[str, Any], status: int, param: str | None,
                                            code: str) -> None:
    answer = program.post("v1/chat/completions", program.chat() | more)
    error = error_of(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), error


OTHER_TABLE: list[tuple[str, dict[str, Any], int, str | None, str]] = [
    ("v1/completions", {"model": CHAT, "prompt": []}, 400, "prompt", "invalid_value"),
    ("v1/completions", {"model": CHAT, "prompt": [[]]}, 400, "prompt[0]", "invalid_value"),
    ("v1/completions", {"model": CHAT, "prompt": [999999]}, 400, "prompt", "invalid_value"),
    ("v1/completions", {"model": CHAT, "prompt": "x", "echo": True}, 400, "echo", "invalid_value"),
    ("v1/completions", {"model": CHAT, "prompt": "x", "suffix": "y"}, 400, "suffix", "unsupported_parameter"),
    ("v1/completions", {"model": CHAT, "prompt": "x", "logprobs": 6}, 400, "logprobs", "invalid_value"),
    ("v1/completions", {"model": CHAT, "prompt": "a " * 9000}, 400, "prompt", "context_length_exceeded"),
    ("v1/completions", {"model": EMBED, "prompt": "x"}, 400, "model", "model_kind"),
    ("v1/embeddings", {"model": CHAT, "input": "x"}, 400, "model", "model_kind"),
    ("v1/embeddings", {"model": EMBED, "input": ""}, 400, "input", "invalid_value"),
    ("v1/embeddings", {"model": EMBED, "input": []}, 400, "input", "invalid_value"),
    ("v1/embeddings", {"model": EMBED, "input": ["a", ""]}, 400, "input[1]", "invalid_value"),
    ("v1/embeddings", {"model": EMBED, "input": ["a"] * 2049}, 400, "input", "invalid_value"),
    ("v1/embeddings", {"model": EMBED, "input": ["a", "b " * 300]}, 400, "input[1]", "context_length_exceeded"),
    ("v1/embeddings", {"model": EMBED, "input": [[999999]]}, 400, "input", "invalid_value"),
    ("v1/embeddings", {"model": EMBED, "input": {"a": 1}}, 400, "input", "invalid_type"),
    ("v1/embeddings", {"model": EMBED, "input": "a", "encoding_format": "int8"}, 400, "encoding_format",
     "invalid_value"),
    ("v1/embeddings", {"model": EMBED, "input": "a", "dimensions": 8}, 400, "dimensions", "invalid_value"),
    ("v1/embeddings", {"model": EMBED, "input": "a", "prompt_name": "nope"}, 400, "prompt_name", "invalid_value"),
    ("v1/rerank", {"model": EMBED, "query": "", "documents": ["a"]}, 400, "query", "invalid_value"),
    ("v1/rerank", {"model": EMBED, "query": "q", "documents": []}, 400, "documents", "invalid_value"),
    ("v1/rerank", {"model": EMBED, "query": "q", "documents": [{"title": "a"}]}, 400, "documents[0].text",
     "missing_required_parameter"),
    ("v2/rerank", {"model": EMBED, "query": "q", "documents": ["a"], "top_n": 0}, 400, "top_n", "invalid_value"),
    ("rerank", {"model": CHAT, "query": "q", "documents": ["a"]}, 400, "model", "model_kind"),
    ("v1/score", {"model": EMBED, "text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 400, "text_2", "invalid_value"),
    ("v1/score", {"model": EMBED, "text_1": "a", "text_2": "b", "method": "cross_encoder"}, 400, "method",
     "invalid_value"),
    ("tokenize", {"model": CHAT}, 400, "prompt", "invalid_value"),
    ("tokenize", {"model": "nothing", "prompt": "x"}, 404, "model", "model_not_found"),
    ("detokenize", {"model": CHAT, "tokens": [999999]}, 400, "tokens", "invalid_value"),
    ("v1/nothing", {}, 404, None, "unknown_url"),
]


@pytest.mark.parametrize(("path", "body", "status", "param", "code"), OTHER_TABLE, ids=lambda value: str(value)[:60])
def test_other_requests_are_refused_by_field(program: Program, path: str, body: dict[str, Any], status: int,
                                             param: str | None, code: str) -> None:
    answer = program.post(path, body)
    error = error_of(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), error


def test_numbers_of_tokens_are_in_the_words_of_what_is_too_long(program: Program) -> None:
    chat = error_of(program.post("v1/chat/completions", program.chat("a " * 9000)))
    assert "8192 tokens" in chat["message"] and "9031 tokens" in chat["message"]
    embed = error_of(program.post("v1/embeddings", {"model": EMBED, "input": "a " * 400}))
    assert "256 tokens" in embed["message"] and "402 tokens" in embed["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"model": NaN}', b"[" * 100_000, b"7"])
def test_what_is_no_json_object_is_refused(program: Program, body: bytes) -> None:
    with program.http as client:
        answer = client.post("v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert error_of(answer)["type"] == "invalid_request_error"


def test_a_body_over_the_limit_is_refused(program: Program) -> None:
    with program.http as client:
        answer = client.post("v1/chat/completions", content=b" " * (33 * 1024 * 1024))
    assert (answer.status_code, error_of(answer)["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-parley-wrong"}, {"authorization": "Basic eDp5"},
                                     {"authorization": "Bearer"}, {"x-api-key": "sk-parley-wrong"}])
def test_without_a_usable_key_everything_is_401(program: Program, headers: dict[str, str]) -> None:


    for path in ("v1/models", "v1/models/smollm2"):
        answer = httpx.get(program.site.url + path, headers=headers)
        assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
    answer = httpx.post(program.site.url + "v1/chat/completions", json=program.chat(), headers=headers)
    assert answer.status_code == 401


@pytest.mark.parametrize("verb", ["GET", "PUT", "PATCH", "DELETE"])
def test_other_verbs_are_refused_in_the_same_shape(program: Program, verb: str) -> None:
    with program.http as client:
        for path in ("v1/chat/completions", "v1/completions", "v1/embeddings", "v1/rerank", "tokenize"):
            answer = client.request(verb, path)
            assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
