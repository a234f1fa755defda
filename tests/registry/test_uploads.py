"""Browser uploads: chunks with checksums on both sides, resumed after a reload, and the ways in which they go wrong."""

import errno
import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from registry import chunks
from registry.chunks import upload_folder
from registry.errors import NotAllowed, UploadRefused
from registry.models import ImportJob, ImportState, Upload, UploadState, Version, VersionState
from registry.services import uploads
from registry.services.import_jobs import import_claim, import_run
from registry.services.uploads import (
    upload_begin,
    upload_cancel,
    upload_chunk,
    upload_finish,
    upload_for,
    upload_progress,
    uploads_expire,
)
from tests.tiny_models import write_tiny_llama

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return User.objects.create_user("root", is_staff=True)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "CHUNK_BYTES", 64 * 1024)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """A complete tiny model, path → content."""
    folder = tmp_path / "llama"
    folder.mkdir()
    write_tiny_llama(folder)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def digests(files: dict[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(body).hexdigest() for path, body in files.items()}


def begin(by: User, files: dict[str, bytes], name: str = "tiny") -> Upload:
    return upload_begin(by=by, name=name, files=[{"path": path, "size": len(body)} for path, body in files.items()])


def send(upload: Upload, by: User, files: dict[str, bytes], only: int | None = None) -> None:
    """Send what is missing, or just so many chunks of it."""
    bodies = list(files.values())
    wanted = [(file, chunk) for file, missing in upload_progress(upload).missing.items() for chunk in missing]
    for file, chunk in wanted[:only]:
        body = bodies[file][chunk * upload.chunk_bytes:(chunk + 1) * upload.chunk_bytes]
        upload_chunk(upload=upload, by=by, file=file, chunk=chunk, body=body, sha256=hashlib.sha256(body).hexdigest())


def run(job: ImportJob) -> ImportJob:
    claimed = import_claim(pk=job.pk, holder="test#1")
    assert claimed is not None
    return import_run(job=claimed)


def test_what_was_sent_becomes_a_version_and_nothing_else_is_left(admin: User, files: dict[str, bytes]) -> None:
    upload = begin(admin, files)
    send(upload, admin, files)
    job = run(upload_finish(upload=upload, by=admin, sha256=digests(files)))
    assert (job.state, job.reason) == (ImportState.DONE, "")
    assert job.version is not None and job.version.state == VersionState.READY
    stored = {row.path: row.blob_id for row in job.version.artifacts.all()}
    assert digests(files).items() <= stored.items()
    assert not upload_folder(upload.pk).exists()


def test_after_a_reload_it_goes_on_where_it_was(admin: User, files: dict[str, bytes]) -> None:
    upload = begin(admin, files)
    total = sum(map(len, files.values()))
    assert upload_progress(upload).total == total and upload_progress(upload).done == 0
    send(upload, admin, files, only=3)
    again = begin(admin, files)
    assert again == upload
    progress = upload_progress(again)
    assert 0 < progress.done < total
    with pytest.raises(UploadRefused, match="have not arrived yet") as refusal:
        upload_finish(upload=again, by=admin, sha256=digests(files))
    assert refusal.value.retry
    send(again, admin, files)
    assert upload_progress(again).done == total and not upload_progress(again).missing
    job = upload_finish(upload=again, by=admin, sha256=digests(files))
    assert upload_finish(upload=again, by=admin, sha256=digests(files)) == job  # the answer was lost
    assert begin(admin, files) != upload


def test_an_archive_is_unpacked_without_its_top_folder(admin: User, files: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, body in files.items():
            archive.writestr(f"llama/{path}", body)
    sent = {"model.zip": packed.getvalue()}
    upload = begin(admin, sent)
    send(upload, admin, sent)
    job = run(upload_finish(upload=upload, by=admin, sha256=digests(sent)))
    assert (job.state, job.reason) == (ImportState.DONE, "")
    assert job.version is not None
    assert set(files) <= set(job.version.artifacts.values_list("path", flat=True))


def test_a_wrong_hash_at_the_end_is_refused_and_nothing_stays(
        admin: User, files: dict[str, bytes], tmp_path: Path) -> None:
    upload = begin(admin, files)
    send(upload, admin, files)
    wrong = digests(files) | {"model.safetensors": "0" * 64}
    job = run(upload_finish(upload=upload, by=admin, sha256=wrong))
    assert job.state == ImportState.REFUSED
    assert "model.safetensors: its SHA-256 is" in job.reason and "upload it again" in job.reason
    assert not Version.objects.exists()
    left = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert left == []


def test_two_uploads_of_the_same_content_at_once_give_one_version(admin: User, files: dict[str, bytes]) -> None:
    other = User.objects.create_user("second", is_staff=True)
    both = [(begin(user, files), user) for user in (admin, other)]
    jobs = []
    for upload, user in both:
        send(upload, user, files)
        jobs.append(upload_finish(upload=upload, by=user, sha256=digests(files)))
    first, second = map(run, jobs)
    assert (first.state, second.state) == (ImportState.DONE, ImportState.REFUSED)
    assert second.reason == "The same content is there already: tiny:1."
    assert second.version == first.version == Version.objects.get()


def test_a_damaged_chunk_is_refused_and_may_be_sent_again(admin: User, files: dict[str, bytes]) -> None:
    upload = begin(admin, files)
    body = next(iter(files.values()))[:upload.chunk_bytes]
    for bad, words in ((body[:-1] + b"\0", "was damaged on the way"), (body[:-1], "instead of")):
        with pytest.raises(UploadRefused, match=words) as refusal:
            upload_chunk(upload=upload, by=admin, file=0, chunk=0, body=bad, sha256=hashlib.sha256(body).hexdigest())
        assert refusal.value.retry
    assert upload_progress(upload).done == 0


@pytest.mark.parametrize("file, chunk", [(99, 0), (-1, 0), (0, 99), (0, -1)])
def test_chunks_that_are_not_of_the_upload_are_refused(
        admin: User, files: dict[str, bytes], file: int, chunk: int) -> None:
    with pytest.raises(UploadRefused, match="has no"):
        upload_chunk(upload=begin(admin, files), by=admin, file=file, chunk=chunk, body=b"", sha256="")


def test_a_full_disk_is_said_and_the_chunk_may_be_sent_again(
        admin: User, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    upload = begin(admin, files)
    body = next(iter(files.values()))[:upload.chunk_bytes]

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(chunks.os, "replace", full)
        with pytest.raises(UploadRefused, match="disk of the server is full") as refusal:
            upload_chunk(upload=upload, by=admin, file=0, chunk=0, body=body, sha256=hashlib.sha256(body).hexdigest())
    assert refusal.value.retry
    assert [path.name for path in upload_folder(upload.pk).rglob("*") if path.is_file()] == []
    upload_chunk(upload=upload, by=admin, file=0, chunk=0, body=body, sha256=hashlib.sha256(body).hexdigest())


def test_an_upload_that_the_disk_has_no_room_for_is_refused_before_it_begins(
        admin: User, files: dict[str, bytes]) -> None:
    with pytest.raises(UploadRefused, match="The disk is too full"):
        upload_begin(by=admin, name="tiny", files=[{"path": "model.safetensors", "size": 2**40}])


@pytest.mark.parametrize("path", ["", "../x", "/etc/x", "C:/x", "a\\b", "a\0b", "a/../../b", "x" * 300, "a//b", "./a"])
def test_paths_that_could_leave_the_model_are_refused(admin: User, path: str) -> None:
    with pytest.raises(UploadRefused):
        upload_begin(by=admin, name="tiny", files=[{"path": path, "size": 1}])


@pytest.mark.parametrize("files, words", [
    ([], "at least one"), ([{"path": "a"}], "needs a path and a size"), ([{"path": "a", "size": -1}], "needs a path"),
    ([{"path": "a", "size": "1"}], "needs a path"), ([{"path": "a", "size": 0}], "are empty"),
    ([{"path": "a", "size": 1}, {"path": "A", "size": 1}], "is there twice"),
    ([{"path": "a", "size": 1}, {"path": "a/b", "size": 1}], "is a file and can't be its folder"),
    ([{"path": "a", "size": 2**60}], "more than")])
def test_impossible_lists_of_files_are_refused(admin: User, files: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UploadRefused, match=words):
        upload_begin(by=admin, name="tiny", files=files)


@pytest.mark.parametrize("name", ["", "Tiny", "a b", "a/b", "..", "a" * 300])
def test_bad_names_are_refused(admin: User, name: str, files: dict[str, bytes]) -> None:
    with pytest.raises(UploadRefused, match="is not allowed"):
        begin(admin, files, name=name)


def test_an_upload_is_its_owners_alone(admin: User, files: dict[str, bytes]) -> None:
    upload = begin(admin, files)
    other = User.objects.create_user("other", is_staff=True)
    assert upload_for(viewer=admin, pk=upload.pk) == upload
    for pk in (upload.pk, "nonsense"):
        with pytest.raises(Upload.DoesNotExist):
            upload_for(viewer=other, pk=pk)
    with pytest.raises(Upload.DoesNotExist):
        upload_chunk(upload=upload, by=other, file=0, chunk=0, body=b"", sha256="")
    with pytest.raises(NotAllowed):
        begin(User.objects.create_user("ada"), files)


def test_a_cancelled_upload_leaves_nothing_and_takes_nothing(admin: User, files: dict[str, bytes]) -> None:
    upload = begin(admin, files)
    send(upload, admin, files, only=2)
    upload_cancel(upload=upload, by=admin)
    assert not upload_folder(upload.pk).exists()
    upload.refresh_from_db()
    with pytest.raises(UploadRefused, match="cancelled and takes no more"):
        send(upload, admin, files, only=1)
    with pytest.raises(UploadRefused, match="is cancelled"):
        upload_finish(upload=upload, by=admin, sha256=digests(files))


def test_uploads_that_nobody_finishes_are_given_up_after_a_week(admin: User, files: dict[str, bytes]) -> None:
    old, young = begin(admin, files), begin(admin, files, name="young")
    for upload in (old, young):
        send(upload, admin, files, only=1)
    Upload.objects.filter(pk=old.pk).update(touched_at="2020-01-01T00:00:00Z")
    stray = upload_folder("of-another-time")
    stray.mkdir()
    assert uploads_expire() == 2
    assert not upload_folder(old.pk).exists() and not stray.exists() and upload_folder(young.pk).exists()
    assert Upload.objects.get(pk=old.pk).state == UploadState.CANCELLED
