"""Services of browser uploads: begin or resume, take a chunk, finish, cancel; any web process can take any chunk.

The browser sends each file in chunks with each chunk's SHA-256, and at the end the SHA-256 of each whole file; the
background import computes the same from what arrived, and refuses the upload where they differ.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.template.defaultfilters import filesizeformat

from registry.access import require_administrator
from registry.chunks import chunk_count, chunk_size, chunk_write, chunks_present, chunks_remove, digest_of
from registry.errors import UploadRefused
from registry.models import NAME, ImportJob, ImportState, Upload, UploadState, Version
from registry.paths import check_paths
from registry.services.import_jobs import import_create

CHUNK_BYTES = 4 * 1024 * 1024
MAX_FILES = 5_000
MAX_BYTES = 4 * 1024**4
SPARE_BYTES = 256 * 1024 * 1024
EXPIRE_AFTER = timedelta(days=7)
TOUCH_AFTER = timedelta(seconds=20)
SHA256 = re.compile(r"\A[0-9a-f]{64}\Z")


@dataclass(frozen=True, kw_only=True)
class UploadProgress:
    """How far one upload is, in bytes. `missing`: for each file, by its number, the chunks that have yet to be sent."""

    done: int
    total: int
    missing: dict[int, list[int]]


def upload_begin(*, by: User, name: str, files: Sequence[Mapping[str, Any]]) -> Upload:
    """Begin an upload of a model called name, or go on with the one that by began with the same name and files.

    files: {"path", "size"} each; the path is the file's inside the model, or one archive (.zip, .tar, .tar.gz, .tgz).
    Raises UploadRefused: a bad name, path or size, doubles, too much, or a disk without room for it; NotAllowed.
    """
    require_administrator(by)
    try:
        NAME(name)
    except ValidationError as error:
        raise UploadRefused(f"The name {name[:80]!r} is not allowed: {error.messages[0]}") from None
    wanted = _checked_files(files)
    for upload in Upload.objects.filter(owner=by, name=name, state=UploadState.RECEIVING):
        if [(file["path"], file["size"]) for file in upload.files] == [
                (file["path"], file["size"]) for file in wanted]:
            return upload
    _require_room(sum(file["size"] for file in wanted))
    return Upload.objects.create(owner=by, name=name, files=wanted, chunk_bytes=CHUNK_BYTES)


def _checked_files(files: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not files:
        raise UploadRefused("Choose at least one file.")
    if len(files) > MAX_FILES:
        raise UploadRefused(f"At most {MAX_FILES:,} files are taken at once.")
    wanted: list[dict[str, Any]] = []
    for file in files:
        path, size = file.get("path"), file.get("size")
        if not isinstance(path, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise UploadRefused("Each file needs a path and a size in bytes.")
        wanted.append({"path": path, "size": size, "sha256": ""})
    check_paths([file["path"] for file in wanted], UploadRefused)
    if not 0 < sum(file["size"] for file in wanted) <= MAX_BYTES:
        raise UploadRefused("The files are empty." if not sum(file["size"] for file in wanted) else
                            f"The files have more than {filesizeformat(MAX_BYTES)}.")
    return wanted


def _require_room(size: int) -> None:
    """The chunks and the files made of them lie on the disk together for a while."""
    settings.PARLEY_STAGING.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(settings.PARLEY_STAGING).free
    if free < 2 * size + SPARE_BYTES:
        raise UploadRefused(f"The disk is too full: the upload needs {filesizeformat(2 * size + SPARE_BYTES)} while it "
                            f"is taken in, and {filesizeformat(free)} are free.")


def upload_for(*, viewer: User, pk: UUID | str) -> Upload:
    """Return one of the viewer's own uploads. Raises Upload.DoesNotExist, alike for missing and foreign ones."""
    try:
        return Upload.objects.get(owner_id=viewer.pk, pk=pk)
    except (ValidationError, ValueError, TypeError):
        raise Upload.DoesNotExist from None


def upload_progress(upload: Upload) -> UploadProgress:
    """What is here and what has yet to be sent, read from the chunk files: what a page asks after a reload."""
    done, missing = 0, {}
    for number, file in enumerate(upload.files):
        here = chunks_present(upload.pk, number, file["size"], upload.chunk_bytes)
        done += sum(chunk_size(file["size"], upload.chunk_bytes, chunk) for chunk in here)
        count = chunk_count(file["size"], upload.chunk_bytes)
        if len(here) < count:
            missing[number] = sorted(set(range(count)) - set(here))
    return UploadProgress(done=done, total=sum(file["size"] for file in upload.files), missing=missing)


def upload_chunk(*, upload: Upload, by: User, file: int, chunk: int, body: bytes, sha256: str) -> None:
    """Store one chunk; sending one again does no harm. file, chunk: numbers from 0. sha256: of the chunk, in hex.

    Raises UploadRefused: with `retry` when the same chunk may be sent again (damaged on the way, disk full), without
    when the upload is over or the chunk isn't one of its own.
    """
    _require_owner(upload, by)
    if upload.state != UploadState.RECEIVING:
        raise UploadRefused(f"The upload is {upload.get_state_display().lower()} and takes no more chunks.")
    if not 0 <= file < len(upload.files):
        raise UploadRefused(f"The upload has no file number {file}.")
    size = upload.files[file]["size"]
    if not 0 <= chunk < chunk_count(size, upload.chunk_bytes):
        raise UploadRefused(f"{upload.files[file]['path']} has no chunk number {chunk}.")
    expected = chunk_size(size, upload.chunk_bytes, chunk)
    if len(body) != expected:
        raise UploadRefused(f"Chunk {chunk} of {upload.files[file]['path']} has {len(body):,} bytes instead of "
                            f"{expected:,}; send it again.", retry=True)
    if digest_of(body) != sha256.lower():
        raise UploadRefused(f"Chunk {chunk} of {upload.files[file]['path']} was damaged on the way (its SHA-256 "
                            "differs); send it again.", retry=True)
    chunk_write(upload.pk, file, chunk, body)
    Upload.objects.filter(pk=upload.pk, touched_at__lt=Now() - TOUCH_AFTER).update(touched_at=Now())


def upload_finish(*, upload: Upload, by: User, sha256: Mapping[str, str], kind: str = "",
                  parent: Version | None = None, publish: bool = True) -> ImportJob:
    """End the upload and begin the import of what arrived. Call again after a lost answer: the same job comes back.

    sha256: of each whole file, by path, as the sender computed it. kind, parent, publish: as `import_create` has them.
    Raises UploadRefused while chunks are missing or a digest isn't given; ImportRefused, NotAllowed.
    """
    _require_owner(upload, by)
    require_administrator(by)
    for file in upload.files:
        digest = sha256.get(file["path"], "").lower()
        if not SHA256.match(digest):
            raise UploadRefused(f"{file['path']}: its SHA-256 is missing.")
        file["sha256"] = digest
    if upload.state == UploadState.RECEIVING and (missing := upload_progress(upload).missing):
        number, chunks = next(iter(missing.items()))
        raise UploadRefused(f"{upload.files[number]['path']}: {len(chunks):,} chunks have not arrived yet.", retry=True)
    with transaction.atomic():
        ended = Upload.objects.filter(pk=upload.pk, state=UploadState.RECEIVING).update(
            state=UploadState.FINISHED, files=upload.files, touched_at=Now())
        upload.refresh_from_db()
        if not ended:
            if upload.state == UploadState.FINISHED and (job := ImportJob.objects.filter(upload=upload).first()):
                return job
            raise UploadRefused(f"The upload is {upload.get_state_display().lower()}.")
        return import_create(by=by, name=upload.name, upload=upload, kind=kind, parent=parent, publish=publish)


def upload_cancel(*, upload: Upload, by: User) -> None:
    """Give up an upload that is being received and remove its chunks; one that has ended stays as it is."""
    _require_owner(upload, by)
    if Upload.objects.filter(pk=upload.pk, state=UploadState.RECEIVING).update(state=UploadState.CANCELLED):
        chunks_remove(upload.pk)


def uploads_expire() -> int:
    """Cancel uploads that got no chunk for EXPIRE_AFTER, remove what is left of ended ones; return how many."""
    stale = Upload.objects.filter(state=UploadState.RECEIVING, touched_at__lt=Now() - EXPIRE_AFTER)
    pks = list(stale.values_list("pk", flat=True))
    for pk in pks:
        if Upload.objects.filter(pk=pk, state=UploadState.RECEIVING).update(state=UploadState.CANCELLED):
            chunks_remove(pk)
    return len(pks) + _remove_leftovers()


def _remove_leftovers() -> int:
    """Remove the chunks of uploads that are over and that no import reads any more."""
    read = Q(state=UploadState.RECEIVING) | Q(job__state__in=[ImportState.QUEUED, ImportState.RUNNING])
    kept = set(map(str, Upload.objects.filter(read).values_list("pk", flat=True)))
    root: Path = settings.PARLEY_STAGING / "uploads"
    gone = [path for path in root.iterdir() if path.name not in kept] if root.is_dir() else []
    for path in gone:
        chunks_remove(path.name)
    return len(gone)


def _require_owner(upload: Upload, by: User) -> None:
    if upload.owner_id != by.pk:
        raise Upload.DoesNotExist
