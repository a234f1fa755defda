"""Background imports: under a root, under a lease, cancelled or interrupted without a trace."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from registry.errors import ImportRefused, NotAllowed
from registry.models import ImportJob, ImportState, Version, VersionState
from registry.paths import import_sources
from registry.services.import_jobs import (
    MAX_ATTEMPTS,
    import_cancel,
    import_claim,
    import_create,
    import_keep,
    import_run,
    imports_waiting,
)
from tests.registry.making import make_version
from tests.tiny_models import write_tiny_gguf, write_tiny_llama

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return User.objects.create_user("root", is_staff=True)


@pytest.fixture
def root(tmp_path: Path, settings: Settings) -> Path:
    """An import root with a folder and a GGUF file in it."""
    root = tmp_path / "models"
    (root / "llama").mkdir(parents=True)
    write_tiny_llama(root / "llama")
    settings.PARLEY_IMPORT_ROOTS = [root]
    return root


def test_a_folder_under_a_root_is_taken_in_with_its_checks(admin: User, root: Path) -> None:
    job = import_create(by=admin, name="tiny", path=str(root / "llama"), publish=False)
    claimed = import_claim(pk=job.pk, holder="a#1")
    assert claimed is not None
    assert import_claim(pk=job.pk, holder="b#1") is None
    assert import_keep(job=claimed)
    done = import_run(job=claimed)
    assert (done.state, done.reason, str(done.version)) == (ImportState.DONE, "", "tiny:1")
    assert done.version is not None and done.version.state == VersionState.VERIFIED
    assert done.version.checks["outcome"] in ("pass", "warn")
    assert import_claim(pk=job.pk, holder="b#1") is None


def test_what_could_be_imported_is_listed(root: Path) -> None:
    write_tiny_gguf(root / "other.gguf")
    (root / "notes.txt").write_text("no model")
    assert [path for path, _ in import_sources()] == [str(root / "other.gguf"), str(root / "llama")]


def test_only_what_lies_under_a_root_is_imported(admin: User, root: Path, tmp_path: Path, settings: Settings) -> None:
    (root / "link").symlink_to(tmp_path)
    outside = (tmp_path, root / ".." / "x", root / "link", "", "/etc/passwd", "a\0b", root / "gone")
    for path in map(str, outside):
        with pytest.raises(ImportRefused):
            import_create(by=admin, name="tiny", path=path)
    settings.PARLEY_IMPORT_ROOTS = []
    with pytest.raises(ImportRefused, match="PARLEY_IMPORT_ROOTS is not set"):
        import_create(by=admin, name="tiny", path=str(root / "llama"))
    with pytest.raises(NotAllowed):
        import_create(by=User.objects.create_user("ada"), name="tiny", path=str(root / "llama"))
    assert not ImportJob.objects.exists()


def test_a_refused_model_says_why_and_leaves_nothing(admin: User, root: Path, tmp_path: Path) -> None:
    (root / "llama" / "config.json").write_text("{}")
    job = import_claim(pk=import_create(by=admin, name="tiny", path=str(root / "llama"), kind="chat").pk, holder="a#1")
    assert job is not None
    ended = import_run(job=job)
    assert ended.state == ImportState.REFUSED and "config.json" in ended.reason
    version = Version.objects.get()
    assert (version.state, version.reason) == (VersionState.REJECTED, ended.reason)
    left = {path.name for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert left <= {".lock"}
    assert [row["name"] for row in ended.checks["results"] if row["outcome"] == "refuse"] == ["Configuration"]
    assert version.checks["results"] == ended.checks["results"]


def test_a_cancelled_import_ends_without_a_trace(admin: User, root: Path, tmp_path: Path) -> None:
    queued = import_create(by=admin, name="tiny", path=str(root / "llama"))
    assert import_cancel(job=queued, by=admin).state == ImportState.CANCELLED
    running = import_claim(pk=import_create(by=admin, name="tiny", path=str(root / "llama")).pk, holder="a#1")
    assert running is not None
    import_cancel(job=running, by=admin)
    assert not import_keep(job=running)
    ended = import_run(job=running, cancelled=lambda: True)
    assert (ended.state, ended.reason) == (ImportState.CANCELLED, "The import was cancelled.")
    assert not Version.objects.exists()
    assert not list((tmp_path / "home").rglob("*.safetensors"))


def test_an_import_whose_worker_died_is_found_and_tried_again_but_not_for_ever(admin: User, root: Path) -> None:
    job = import_create(by=admin, name="tiny", path=str(root / "llama"))
    assert imports_waiting() == []  # its message is on the way
    ImportJob.objects.update(created_at="2020-01-01T00:00:00Z")
    assert imports_waiting() == [str(job.pk)]
    dead = import_claim(pk=job.pk, holder="a#1")
    assert dead is not None and imports_waiting() == []
    begun = make_version("tiny", state=VersionState.VERIFYING)
    ImportJob.objects.update(held_until="2020-01-01T00:00:00Z", version=begun)
    assert imports_waiting() == [str(job.pk)]
    alive = import_claim(pk=job.pk, holder="b#1")
    assert alive is not None
    assert not import_keep(job=dead)
    assert import_run(job=alive).state == ImportState.DONE
    begun.refresh_from_db()
    assert (begun.state, begun.reason) == (VersionState.REJECTED, "The import was interrupted.")
    assert str(Version.objects.get(state=VersionState.READY)) == "tiny:2"
    ImportJob.objects.update(state=ImportState.QUEUED, attempt=MAX_ATTEMPTS)
    again = import_claim(pk=job.pk, holder="c#1")
    assert again is not None
    assert "ended 3 times before it was done" in import_run(job=again).reason
