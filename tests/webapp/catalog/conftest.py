"""People with different rights, and models of which there are only the rows: enough for all but their content."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from registry.models import Access, Model, Version
from tests.webapp.sockets import PageSocket


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


class Socket(PageSocket):
    path = "/ws/catalog/"
