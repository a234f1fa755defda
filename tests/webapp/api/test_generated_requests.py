"""Requests that schemathesis makes from our own OpenAPI document: never a 5xx, and every answer as documented."""

import os
from collections import Counter
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from tests.webapp.api.conftest import CHAT, EMBED, Program

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

GROUP_REQUESTS = int(os.environ.get("PARLEY_GENERATED_REQUESTS", "2000"))
LEAST_ACCEPTED = 0.3
GROUPS: dict[str, list[tuple[str, str]]] = {
    "replies": [("/v1/chat/completions", "POST"), ("/v1/completions", "POST")],
    "pooling": [("/v1/embeddings", "POST"), ("/v1/rerank", "POST"), ("/v2/rerank", "POST"), ("/rerank", "POST"),
                ("/v1/score", "POST")],
    "tokens": [("/tokenize", "POST"), ("/detokenize", "POST")],
    "models": [("/v1/models", "GET"), ("/v1/models/{model_id}", "GET")],
}
MOST_OPTIONAL = 3  # fields beyond the required ones: with all forty, some pair always contradicts
SMALL = {"max_tokens": 3, "max_completion_tokens": 3, "n": 2, "min_tokens": 1}
SELDOM = {"tools", "tool_choice", "response_format", "chat_template_kwargs", "dimensions", "prompt_name", "outputs",
          "method", "max_completion_tokens"}  # what is generated of these hardly ever fits the model
ONE_IN_TEN, ODD = st.integers(0, 9), 7  # 0 and 9 come more often than others
NEEDS: dict[str, dict[str, Any]] = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True},
                                    "n": {"temperature": 1.0}}


@st.composite
def likely(draw: st.DrawFn, operation: Any) -> Any:
    """A generated request, most of which go to a model that exists and are put right where fields contradict."""
    case = draw(operation.as_strategy())
    if "{model_id}" in operation.path:
        case.path_parameters = {"model_id": draw(st.sampled_from([CHAT, EMBED, "smollm2:1", "nothing"]))}
    if isinstance(case.body, dict) and draw(ONE_IN_TEN) != ODD:
        case.body = put_right(draw, operation, case.body)
    if isinstance(case.body, dict) and "completions" in operation.path:
        case.body = short(case.body)
    return case


def short(body: dict[str, Any]) -> dict[str, Any]:
    """The same with a reply of a few tokens: without a limit it could be as long as the context."""
    limits = [name for name in ("max_tokens", "max_completion_tokens") if isinstance(body.get(name), int)]
    bounded = {name: min(body[name], SMALL[name]) for name in limits}
    return body | (bounded or {"max_tokens": SMALL["max_tokens"]})


def put_right(draw: st.DrawFn, operation: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Keep the required fields and a few others, with what those need; bound what costs time."""
    pools = any(word in operation.path for word in ("embeddings", "rerank", "score"))
    asked = {"messages", "prompt", "input", "query", "documents", "text_1", "text_2", "tokens", "model"}
    optional = sorted(set(body) - asked - (SELDOM if draw(ONE_IN_TEN) != ODD else set()))
    kept = set(draw(st.permutations(optional))[:MOST_OPTIONAL]) if optional else set()
    found = {name: ids_within(value, 30_000) if name in asked | {"stop_token_ids"} else value
             for name, value in body.items() if name in asked | kept}
    found["model"] = EMBED if pools else CHAT
    for name in kept:
        found |= NEEDS.get(name, {}) if found.get(name) is not None else {}
    for name, most in SMALL.items():
        if isinstance(found.get(name), int):
            found[name] = min(found[name], most)
    if "max_completion_tokens" in found:
        found.pop("max_tokens", None)
    if operation.path == "/tokenize":
        found.pop("prompt" if found.get("messages") else "messages", None)
        if not found.get("messages"):
            found["prompt"] = found.get("prompt") or ""
    if isinstance(found.get("logit_bias"), dict):
        found["logit_bias"] = {str(int(key) % 30_000): value for key, value in found["logit_bias"].items()
                               if key.isascii() and key.isdigit()}
    if isinstance(found.get("messages"), list):
        found["messages"] = [with_sound_calls(message) for message in found["messages"]]
    if isinstance(found.get("text_1"), list) and isinstance(found.get("text_2"), list):
        found["text_1"] = found["text_1"][0]
    return found


def ids_within(value: Any, limit: int) -> Any:
    """The same with token ids that the model has."""
    if isinstance(value, list):
        return [ids_within(item, limit) for item in value]
    return value % limit if isinstance(value, int) and not isinstance(value, bool) else value


def with_sound_calls(message: Any) -> Any:
    """The same message with calls whose arguments are JSON, and a content."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message
    calls = [call | {"function": call["function"] | {"arguments": "{}"}} for call in message.get("tool_calls") or []]
    return message | {"tool_calls": calls, "content": message.get("content") or ""}


@pytest.mark.parametrize("group", GROUPS)
def test_generated_requests_are_answered_as_documented(embedding: Program, group: str) -> None:
    schema = schemathesis.openapi.from_url(f"{embedding.site.url}v1/openapi.json")
    each = -(-GROUP_REQUESTS // len(GROUPS[group]))
    for path, method in GROUPS[group]:
        statuses = send(embedding, schema[path][method], each)
        accepted = sum(count for status, count in statuses.items() if status < 300) / statuses.total()
        print(f"{method} {path}: {dict(sorted(statuses.items()))}, {accepted:.0%} accepted")
        assert statuses.total() >= each * 0.9
        assert not [status for status in statuses if status >= 500], (path, statuses)
        assert accepted >= LEAST_ACCEPTED, (path, statuses)


def send(program: Program, operation: Any, count: int) -> "Counter[int]":
    statuses: Counter[int] = Counter()
    headers = {"authorization": f"Bearer {program.key}"}

    @hypothesis.given(likely(operation))
    @hypothesis.settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate],
                         suppress_health_check=list(HealthCheck))
    def run(case: Any) -> None:
        response = case.call(base_url=program.site.url.rstrip("/"), headers=headers, timeout=120)
        statuses[response.status_code] += 1
        operation.validate_response(response)

    run()
    return statuses
