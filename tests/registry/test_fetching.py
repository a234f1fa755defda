"""A machine that lacks content takes it from a shared folder or from the site, whole or not at all."""

import hashlib
import shutil
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from registry import fetching
from registry.blobs import blob_path
from registry.errors import BlobMissing
from registry.fetching import blobs_fetch
from registry.models import Version
from registry.selectors import version_folder
from registry.services.imports import version_import
from tests.tiny_models import write_tiny_llama

TOKEN = "a token for tests"


@pytest.fixture
def version(transactional_db: None, tmp_path: Path) -> Version:
    folder = tmp_path / "llama"
    folder.mkdir()
    write_tiny_llama(folder)
    return version_import(path=folder, name="tiny")


@pytest.fixture
def elsewhere(version: Version, tmp_path: Path, settings: Settings) -> Path:
    """Make this another machine, without content, and return where the first one's lies."""
    first: Path = settings.PARLEY_BLOBS
    settings.PARLEY_HOME = tmp_path / "second"
    settings.PARLEY_BLOBS = settings.PARLEY_HOME / "blobs"
    settings.PARLEY_STAGING = settings.PARLEY_HOME / "staging"
    return first


def assert_whole(version: Version) -> None:
    for artifact in version.artifacts.all():
        assert hashlib.sha256(blob_path(artifact.blob_id).read_bytes()).hexdigest() == artifact.blob_id
    assert (version_folder(version) / "config.json").is_file()


def test_without_a_source_it_says_what_to_set(version: Version, elsewhere: Path) -> None:
    with pytest.raises(BlobMissing, match="set PARLEY_BLOB_SOURCE"):
        blobs_fetch(version)


def test_it_is_copied_from_a_shared_folder_and_checked(version: Version, elsewhere: Path, settings: Settings) -> None:
    settings.PARLEY_BLOB_SOURCE = str(elsewhere)
    seen: list[tuple[int, int]] = []
    total = blobs_fetch(version, on_progress=lambda *step: seen.append(step))
    assert total == sum(artifact.blob.size for artifact in version.artifacts.select_related("blob"))
    assert seen[-1] == (total, total)
    assert_whole(version)
    assert blobs_fetch(version) == 0


def test_damaged_content_does_not_enter_the_store(version: Version, elsewhere: Path, settings: Settings) -> None:
    settings.PARLEY_BLOB_SOURCE = str(elsewhere)
    weights = version.artifacts.get(path="model.safetensors").blob
    damaged = elsewhere / weights.pk[:2] / weights.pk
    damaged.chmod(0o644)
    damaged.write_bytes(b"\0" * weights.size)
    with pytest.raises(BlobMissing, match="has another SHA-256"):
        blobs_fetch(version)
    assert not blob_path(weights.pk).exists()
    shutil.rmtree(elsewhere)
    with pytest.raises(BlobMissing, match="can't be fetched"):
        blobs_fetch(version)


def test_it_is_pulled_from_the_site_in_ranges_and_resumed(
        version: Version, settings: Settings, live_server: Any, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The site and the node are one process here, so what the node lacks is moved away from the site's view first."""
    settings.PARLEY_NODE_TOKEN = TOKEN
    settings.PARLEY_BLOB_SOURCE = live_server.url
    monkeypatch.setattr(fetching, "RANGE_BYTES", 64 * 1024)
    weights = version.artifacts.get(path="model.safetensors").blob
    content = blob_path(weights.pk).read_bytes()
    served = tmp_path / "served"
    shutil.move(blob_path(weights.pk), served)
    monkeypatch.setattr("webapp.serving.blob_views.blob_range", lambda sha256, *, start, end: (
        served.read_bytes()[start:end + 1]))
    asked: list[str] = []
    real = fetching.urllib.request.urlopen

    def cut_off(request: Any, **options: Any) -> Any:
        asked.append(request.headers["Range"])
        if len(asked) == 3:
            raise fetching.urllib.error.HTTPError(request.full_url, 404, "gone for a moment", Message(), None)
        return real(request, **options)

    monkeypatch.setattr(fetching.urllib.request, "urlopen", cut_off)
    with pytest.raises(BlobMissing, match="can't be fetched from"):
        blobs_fetch(version)
    assert not blob_path(weights.pk).exists()
    assert blobs_fetch(version) == weights.size
    assert asked[:4] == ["bytes=0-65535", "bytes=65536-131071", "bytes=131072-196607", "bytes=131072-196607"]
    assert blob_path(weights.pk).read_bytes() == content


def test_content_is_given_to_who_knows_the_token_in_bounded_ranges(
        version: Version, client: Any, settings: Settings) -> None:
    weights = version.artifacts.get(path="model.safetensors").blob

    def ask(wanted: str | None, token: str = TOKEN, sha256: str = weights.pk) -> Any:
        headers = {"Authorization": f"Bearer {token}"} | ({} if wanted is None else {"Range": wanted})
        return client.get(f"/nodes/blobs/{sha256}", headers=headers)

    for none in ("", TOKEN):
        assert ask("bytes=0-9", token=none).status_code == 404  # the site has no token
    settings.PARLEY_NODE_TOKEN = TOKEN
    for wanted in (None, "bytes=0-99999999", "bytes=9-0", "bytes=0-9,20-29", "bytes=999999999-999999999", "items=0-9"):
        assert ask(wanted).status_code == 416
    assert ask("bytes=0-9", token="wrong").status_code == 404
    assert ask("bytes=0-9", sha256="0" * 64).status_code == 404
    answer = ask("bytes=0-9")
    assert (answer.status_code, answer.content) == (206, blob_path(weights.pk).read_bytes()[:10])
    assert answer.headers["Content-Range"] == f"bytes 0-9/{weights.size}"
