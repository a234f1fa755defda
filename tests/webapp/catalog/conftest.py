"""People with different rights, and models of which there are only the rows: enough for all but their content."""

from collections.abc import Callable
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from registry.models import Access, Model, Version
from webapp.config.asgi import application


@pytest.fixture
def administrator(db: None) -> User:
    return User.objects.create_superuser("root", password="a long pass phrase")


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password="a long pass phrase")


@pytest.fixture
def admin_page(administrator: User) -> Client:
    """A browser in which an administrator is signed in."""
    client = Client()
    client.force_login(administrator)
    return client


@pytest.fixture
def page(ada: User) -> Client:
    """A browser in which Ada, who is no administrator, is signed in."""
    client = Client()
    client.force_login(ada)
    return client


@pytest.fixture
def make_model(db: None) -> Callable[..., Model]:
    """Make a model with so many ready versions; keyword arguments go to the model."""

    def make(name: str, versions: int = 1, **fields: Any) -> Model:
        model = Model.objects.create(name=name, **fields)
        Version.objects.bulk_create(
            Version(model=model, number=number, state="ready", context_length=2048, parameters=10**6)
            for number in range(1, versions + 1))
        return model

    return make


@pytest.fixture
def paper(make_model: Callable[..., Model]) -> Model:
    """A chat model with two ready versions that everybody may use."""
    return make_model("paper", versions=2, description="Folded by hand", tags="small white")


@pytest.fixture
def secret(make_model: Callable[..., Model]) -> Model:
    """A model that only administrators may use."""
    return make_model("secret", access=Access.ADMINISTRATORS)


@pytest.fixture
def count_queries() -> Callable[[Client, str], int]:
    """Get an address and return how many queries it took."""

    def count(client: Client, url: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(url).status_code == 200
        return len(queries)

    return count


class Socket(WebsocketCommunicator):
    """A page's socket on the site's ASGI application, with the cookies of a signed-in client."""

    def __init__(self, client: Client | None) -> None:
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items()) if client else ""
        headers = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookies.encode())]
        super().__init__(application, "/ws/catalog/", headers=headers)

    async def __aenter__(self) -> "Socket":
        connected, _ = await self.connect(timeout=5)
        assert connected
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect(timeout=5)

    async def ask(self, **frame: Any) -> dict[str, Any]:
        """Send a frame and return the next one that comes."""
        await self.send_json_to(frame)
        return await self.next()

    async def next(self, *, within: float = 5) -> dict[str, Any]:
        frame: dict[str, Any] = await self.receive_json_from(timeout=within)
        return frame
