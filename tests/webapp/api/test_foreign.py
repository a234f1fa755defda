"""One person's key never sees, names or spends what is another's: every endpoint, every verb."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.webapp.api.conftest import CHAT, EMBED, Program, error_of
from tests.webapp.serving.running_node import wait_for

pytestmark = pytest.mark.timeout(400)

MESSAGES = [{"role": "user", "content": "x"}]
ENDPOINTS: list[tuple[str, dict[str, Any]]] = [
    ("v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2}),
    ("v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "stream": True}),
    ("v1/completions", {"prompt": "x", "max_tokens": 2}),
    ("tokenize", {"prompt": "x"}), ("detokenize", {"tokens": [1]}),
    ("v1/embeddings", {"input": "x"}), ("v1/rerank", {"query": "x", "documents": ["y"]}),
    ("v2/rerank", {"query": "x", "documents": ["y"]}), ("rerank", {"query": "x", "documents": ["y"]}),
    ("v1/score", {"text_1": "x", "text_2": "y"}),
]


@pytest.fixture
def closed(program: Program) -> Iterator[None]:
    """Both models are for administrators only."""
    from registry.models import Model

    with program.site.database() as alias:
        Model.objects.using(alias).update(access="administrators")
    yield
    with program.site.database() as alias:
        Model.objects.using(alias).update(access="everyone")


def test_a_model_of_others_is_as_if_it_were_not_there(program: Program, somebody: Callable[..., Program],
                                                       closed: None) -> None:
    eve = somebody("eve")
    assert eve.openai.models.list().data == []
    for name in (CHAT, EMBED, f"{CHAT}:1", f"{EMBED}:1"):
        with eve.http as client:
            foreign, missing = client.get(f"v1/models/{name}"), client.get("v1/models/nothing")
        assert (foreign.status_code, missing.status_code) == (404, 404)
        assert error_of(foreign)["message"].replace(name, "nothing") == error_of(missing)["message"]
        for path, body in ENDPOINTS:
            foreign, missing = (eve.post(path, body | {"model": model}) for model in (name, "nothing"))
            assert (foreign.status_code, missing.status_code) == (404, 404), path
            assert error_of(foreign)["message"].replace(name, "nothing") == error_of(missing)["message"]


def test_other_verbs_tell_nothing(somebody: Callable[..., Program], closed: None) -> None:
    eve = somebody("eva")
    with eve.http as client:
        for path, _ in ENDPOINTS:
            for verb in ("GET", "PUT", "PATCH", "DELETE"):
                assert client.request(verb, path).status_code == 405
        for verb in ("POST", "PUT", "PATCH", "DELETE"):
            for name in (CHAT, "nothing"):
                assert client.request(verb, f"v1/models/{name}").status_code == 405


def test_a_scope_that_a_key_lacks_is_refused_everywhere(somebody: Callable[..., Program]) -> None:
    chat_only = somebody("carl", scopes="chat")
    for path, body in ENDPOINTS:
        answer = chat_only.post(path, body | {"model": "nothing"})
        wants_embed = path.rpartition("/")[2] in ("embeddings", "rerank", "score")
        assert answer.status_code == (403 if wants_embed else 404), path
    embed_only = somebody("carl", scopes="embed")
    assert error_of(embed_only.post("v1/chat/completions", chat_only.chat()))["code"] == "insufficient_scope"


def test_what_one_uses_is_counted_to_the_one_and_limits_are_ones_own(program: Program,
                                                                      somebody: Callable[..., Program]) -> None:
    from webapp.accounts.models import Quota, Usage

    ada, bob = somebody("ada"), somebody("bob")
    with program.site.database() as alias:
        from django.contrib.auth.models import User

        people = {name: User.objects.using(alias).get(username=name) for name in ("ada", "bob")}
        Quota.objects.using(alias).create(user=people["ada"], requests_per_minute=2)
    answers = [ada.post("v1/chat/completions", ada.chat(max_tokens=2)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "1"
    assert int(answers[2].headers["retry-after"]) >= 1 and error_of(answers[2])["code"] == "rate_limit_exceeded"
    others = bob.post("v1/chat/completions", bob.chat(max_tokens=2))
    assert others.status_code == 200 and "x-ratelimit-limit-requests" not in others.headers

    def rows(name: str) -> list[int]:
        with program.site.database() as alias:
            return list(Usage.objects.using(alias).filter(user=people[name]).values_list("output_tokens", flat=True))

    wait_for(lambda: (rows("ada"), rows("bob")) == ([2, 2], [2]), seconds=5, what="each has the own usage")


def test_cookies_open_nothing(program: Program) -> None:
    """A page of another site can make a browser send cookies, but never a key."""


    browser = httpx.Client(base_url=program.site.url)
    token = browser.get("accounts/login/").cookies["csrftoken"]
    signed_in = browser.post("accounts/login/", data={"username": program.site.username, "csrfmiddlewaretoken": token,
                                                      "password": program.site.password})
    assert signed_in.status_code == 302
    assert browser.get("v1/models").status_code == 401
    assert "access-control-allow-origin" not in browser.get("v1/models").headers
