"""The live site as programs see it: keys of two people, and clients that people already use."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.live_site import LiveSite

CHAT, EMBED = "smollm2", "minilm"
LOAD_SECONDS = 300.0


@dataclass(frozen=True)
class Program:
    """A program with a key of its own. `http` speaks to the site's root."""

    site: LiveSite
    key: str

    @property
    def base_url(self) -> str:
        return f"{self.site.url}v1"

    @property
    def openai(self) -> OpenAI:
        return OpenAI(base_url=self.base_url, api_key=self.key, max_retries=0, timeout=LOAD_SECONDS)

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.site.url, headers={"authorization": f"Bearer {self.key}"},
                            timeout=LOAD_SECONDS)

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        with self.http as client:
            return client.post(path, json=body, **more)

    def chat(self, text: str = "Say hi.", **more: Any) -> dict[str, Any]:
        """The body of a short greedy chat request."""
        return {"model": CHAT, "messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0,
                **more}


@pytest.fixture(scope="session")
def program(live_site: LiveSite) -> Program:
    """A program of the administrator, with every scope."""
    return Program(live_site, live_site.manage("create_api_key", live_site.username, "--scopes", "chat,embed,admin"))


@pytest.fixture(scope="session")
def embedding(program: Program) -> Program:
    """The same once the embedding model is loaded, which its first use has begun."""
    program.openai.embeddings.create(model=EMBED, input="load")
    return program


@pytest.fixture
def somebody(live_site: LiveSite) -> Iterator[Callable[..., Program]]:
    """Make another person with a key, or one more key for that person; gone after the test."""
    from django.contrib.auth.models import User

    from webapp.accounts.models import ApiKey
    from webapp.accounts.services import KEY_START, key_digest

    made: list[str] = []

    def make(name: str, *, scopes: str = "chat,embed") -> Program:
        secret = f"{KEY_START}{name}-{len(made)}"
        with live_site.database() as alias:
            owner, _ = User.objects.using(alias).get_or_create(username=name)
            ApiKey.objects.using(alias).create(owner=owner, name="tests", scopes=scopes.split(","),
                                               digest=key_digest(secret), start=secret[:14])
        made.append(name)
        return Program(live_site, secret)

    yield make
    with live_site.database() as alias:
        User.objects.using(alias).filter(username__in=made).delete()


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a reply, after a look at its shape."""
    body = response.json()
    assert list(body) == ["error"], body
    assert set(body["error"]) == {"message", "type", "param", "code"}, body
    assert body["error"]["message"] and isinstance(body["error"]["type"], str)
    assert response.headers["x-request-id"]
    return dict(body["error"])
