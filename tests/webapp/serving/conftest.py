"""Fixtures of serving: people, rows, and a real node worker on the test's own database and Valkey."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.webapp.serving.running_node import RunningNode
from tests.webapp.serving.running_valkey import OwnValkey

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from registry.models import Version
    from webapp.serving.models import Generation


@pytest.fixture
def ada(db: None) -> "User":
    from django.contrib.auth.models import User

    return User.objects.create_user("ada")


@pytest.fixture
def bare_version(db: None) -> "Version":
    """A ready version without files: enough for everything that doesn't load it."""
    from registry.models import Model, Version, VersionState

    model = Model.objects.create(name="bare")
    return Version.objects.create(model=model, number=1, state=VersionState.READY, context_length=100)


@pytest.fixture
def make_generation(ada: "User", bare_version: "Version") -> Callable[..., "Generation"]:
    """Make a generation row of ada's; keyword arguments replace its fields."""
    from webapp.serving.models import Generation

    def make(**fields: Any) -> Generation:
        values: dict[str, Any] = {"owner": ada, "version": bare_version, "prompt_ids": [1, 2, 3], "prompt_tokens": 3,
                                  "params": {"max_tokens": 20, "temperature": 0.0}}
        generation = Generation.objects.create(**{**values, **fields})
        return Generation.objects.select_related("version__model").get(pk=generation.pk)

    return make


@pytest.fixture
def running_node(transactional_db: None, clean_redis: Any, redis_url: str, tmp_path: Path) -> Iterator[RunningNode]:
    node = RunningNode(redis_url=redis_url, log=tmp_path / "node.log")
    yield node
    node.stop()
    assert node.left_over() == []


@pytest.fixture
def node_on_own_valkey(transactional_db: None, own_valkey: OwnValkey, tmp_path: Path) -> Iterator[RunningNode]:
    """The same on a Valkey that the test may kill."""
    node = RunningNode(redis_url=own_valkey.url, log=tmp_path / "node.log")
    yield node
    node.stop()
    assert node.left_over() == []


@pytest.fixture
def own_valkey(tmp_path: Path, settings: Any) -> Iterator[OwnValkey]:
    """A Valkey that this test may kill; this process's streams go there."""
    from webapp.serving.streams import stream_client

    valkey = OwnValkey(tmp_path / "valkey")
    settings.REDIS_URL = valkey.url
    stream_client.cache_clear()
    yield valkey
    stream_client.cache_clear()
    valkey.kill()
