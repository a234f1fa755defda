"""Fixtures for every test: real parts in a home folder of their own."""

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.environment import TestEnvironment

# Before anything imports Django's settings, test modules and other conftests included.
ENVIRONMENT = TestEnvironment()
ENVIRONMENT.export()

import django  # noqa: E402

django.setup()

from webapp.ops.demo import DEMO_CHAT, DEMO_EMBEDDING, DemoModel  # noqa: E402

if TYPE_CHECKING:
    from registry.models import Version
    from tests.live_site import LiveSite

SLOW_SECONDS = 600  # a cold start compiles kernels, and a busy machine is several times slower
DATABASE_FIXTURES = {"db", "transactional_db", "django_db_serialized_rollback", "live_server"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they use: `-m postgres` runs what needs the database again; GPU tests wait for a GPU.

    Tests on the live site share it and come late, those with a browser last: Playwright leaves an event loop running in
    this thread, which asyncio's tests can't bear.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "browser" in fixtures:
            item.add_marker(pytest.mark.browser)
        elif "live_site" in fixtures:
            item.add_marker(pytest.mark.live)
        elif item.get_closest_marker("django_db") or DATABASE_FIXTURES & fixtures:
            item.add_marker(pytest.mark.postgres)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
    items.sort(key=lambda item: [item.get_closest_marker(name) is not None for name in ("browser", "live")])


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def pytest_unconfigure() -> None:
    ENVIRONMENT.close()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """Put the SQLite test database into a file: in memory, threads and processes would not meet as they do live."""
    from django.db import connections

    settings = connections["default"].settings_dict
    if settings["ENGINE"] == "django.db.backends.sqlite3":
        settings["TEST"]["NAME"] = str(ENVIRONMENT.home / "test.sqlite3")


@pytest.fixture(autouse=True, scope="session")
def _test_settings() -> Iterator[None]:
    """Hash passwords with one cheap round (tests sign in often), and render pages without collecting static files."""
    from django.conf import settings
    from django.test import override_settings

    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    with override_settings(
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        STORAGES=settings.STORAGES | {"staticfiles": plain},
    ):
        yield


@pytest.fixture(scope="session")
def parley_home() -> Path:
    """PARLEY_HOME of this test session."""
    return ENVIRONMENT.home


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The session's Valkey, the same that settings.REDIS_URL names."""
    return ENVIRONMENT.redis_url


@pytest.fixture
def clean_redis(redis_url: str) -> Iterator[Any]:
    """A client of the session's Valkey, emptied before the test."""
    import redis

    client = redis.Redis.from_url(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture(scope="session")
def live_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
              django_db_blocker: Any) -> "Iterator[LiveSite]":
    """The real processes with the demo model in int8, or parametrize("live_site", ["float32"], indirect=True).

    "postgres": in int8, with a PostgreSQL of its own in place of SQLite.
    """
    from tests.live_site import LiveSite
    from tools.postgres import postgres_server

    wished = getattr(request, "param", "int8")
    home: Path = tmp_path_factory.mktemp("site")
    with postgres_server() if wished == "postgres" else nullcontext("") as url:
        site = LiveSite(home=home, mode="int8" if url else wished, db_blocker=django_db_blocker, database_url=url)
        try:
            yield site
        finally:
            left = site.stop()
        assert not left, f"processes outlived the site: {left}"
    shutil.rmtree(home / "blobs", ignore_errors=True)


def _demo_path(model: DemoModel) -> Path:
    if model.path is None:
        pytest.fail(f"The demo model's package {model.package} isn't installed; `make test` installs it.")
    return model.path


@pytest.fixture(scope="session")
def demo_chat_path() -> Path:
    """SmolLM2-135M-Instruct as one GGUF file, Q4_1."""
    return _demo_path(DEMO_CHAT)


@pytest.fixture(scope="session")
def demo_embedding_path() -> Path:
    """all-MiniLM-L6-v2 as a folder with safetensors."""
    return _demo_path(DEMO_EMBEDDING)


@pytest.fixture
def demo_version(db: None, demo_chat_path: Path) -> "Version":
    """The demo chat model, imported and ready, as version 1 of `smollm2`."""
    from registry.services.imports import version_import

    return version_import(path=demo_chat_path, name=DEMO_CHAT.name)


@pytest.fixture
def embedding_version(db: None, demo_embedding_path: Path) -> "Version":
    """The demo embedding model, imported and ready, as version 1 of `minilm`."""
    from registry.services.imports import version_import

    return version_import(path=demo_embedding_path, name=DEMO_EMBEDDING.name)
