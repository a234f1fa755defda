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
MOST_OPTIONAL = 2  # fields beyond the required ones: with all forty, some pair always contradicts
SMALL = {"max_tokens": 3, "max_completion_tokens": 3, "n": 2}


@st.composite
def likely(draw: st.DrawFn, operation: Any) -> Any:
    """A generated request, mostly to a model that exists, short, and with few optional fields."""
    case = draw(operation.as_strategy())
    path = operation.path
    if "{model_id}" in path:
        case.path_parameters = {"model_id": draw(st.sampled_from([CHAT, EMBED, "smollm2:1", "nothing"]))}
    if isinstance(case.body, dict):
        required = set(operation.body[0].definition["schema"].get("required", ()))
        optional = sorted(set(case.body) - required)
        kept = required | set(draw(st.permutations(optional))[:MOST_OPTIONAL] if optional else ())
        body = {name: value for name, value in case.body.items() if name in kept}
        if draw(st.integers(0, 9)):
            body["model"] = EMBED if any(word in path for word in ("embeddings", "rerank", "score")) else CHAT
        for name, most in SMALL.items():
            if isinstance(body.get(name), int):
                body[name] = min(body[name], most)
        if "completions" in path and "max_completion_tokens" not in body:
            body["max_tokens"] = 3
        if "/detokenize" in path and isinstance(body.get("tokens"), list):
            body["tokens"] = [token % 49152 if isinstance(token, int) else token for token in body["tokens"]]
        case.body = body
    return case


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
        if "text/event-stream" not in response.headers.get("content-type", ""):
            operation.validate_response(response)

    run()
    return statuses
