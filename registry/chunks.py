"""The chunk files of browser uploads on shared storage: written whole or not at all, found again after a reload."""

import contextlib
import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from registry.errors import UploadRefused

READ_BYTES = 1024 * 1024


def upload_folder(upload_pk: object) -> Path:
    """Return where an upload's chunks lie: PARLEY_STAGING/uploads/<id>/<file number>/<chunk number>."""
    root: Path = settings.PARLEY_STAGING
    return root / "uploads" / str(upload_pk)


def chunk_count(size: int, chunk_bytes: int) -> int:
    """Chunks of a file; an empty file has none."""
    return -(-size // chunk_bytes)


def chunk_size(size: int, chunk_bytes: int, chunk: int) -> int:
    """Bytes of one chunk of a file: all have chunk_bytes but the last."""
    return min(chunk_bytes, size - chunk * chunk_bytes)


def chunk_write(upload_pk: object, file: int, chunk: int, body: bytes) -> None:
    """Write a chunk atomically; one that is there already is replaced. Raises UploadRefused when the disk is full."""
    folder = upload_folder(upload_pk) / str(file)
    fresh = folder / f".{chunk}-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as writer:
            writer.write(body)
        os.replace(fresh, folder / str(chunk))
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UploadRefused("The disk of the server is full; free some space and resume the upload.",
                                retry=True) from None
        raise UploadRefused(f"The chunk can't be stored ({error.strerror}).", retry=True) from None


def chunks_present(upload_pk: object, file: int, size: int, chunk_bytes: int) -> list[int]:
    """Return the numbers of a file's chunks that are here whole, in order."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(upload_folder(upload_pk) / str(file)) as entries:
        for entry in entries:
            if entry.name.isdecimal() and int(entry.name) < chunk_count(size, chunk_bytes) and (
                    entry.stat().st_size == chunk_size(size, chunk_bytes, int(entry.name))):
                found.append(int(entry.name))
    return sorted(found)


def chunks_read(upload_pk: object, file: int, count: int) -> Iterator[bytes]:
    """Yield a file's content from its chunks in order. Raises UploadRefused when one is missing."""
    folder = upload_folder(upload_pk) / str(file)
    for chunk in range(count):
        try:
            with (folder / str(chunk)).open("rb") as reader:
                while piece := reader.read(READ_BYTES):
                    yield piece
        except FileNotFoundError:
            raise UploadRefused(f"Chunk {chunk} is missing from the server; upload it again.") from None


def chunks_remove(upload_pk: object) -> None:
    shutil.rmtree(upload_folder(upload_pk), ignore_errors=True)


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
