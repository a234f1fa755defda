"""The content store: files named by their SHA-256 under PARLEY_BLOBS, written once, published atomically, read-only."""

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

READ_ONLY = 0o444


def blob_path(sha256: str) -> Path:
    """Return where the content with this digest lies, or would lie: blobs/ab/abcdef…"""
    root: Path = settings.PARLEY_BLOBS
    return root / sha256[:2] / sha256


def blob_present(sha256: str, size: int) -> bool:
    """Say whether this machine holds the content, by name and size; the digest itself is checked when it is written."""
    try:
        return blob_path(sha256).stat().st_size == size
    except FileNotFoundError:
        return False


@contextmanager
def blobs_locked() -> Iterator[None]:
    """Hold the store's lock, so that nobody relies on content that this process may still withdraw."""
    root: Path = settings.PARLEY_BLOBS
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / ".lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def blob_publish(staged: Path, *, sha256: str, size: int) -> bool:
    """Move a staged file, whose digest has been computed and which has been synced, into the store.

    Return whether it was new. Content that is there already is left as it is.
    """
    if blob_present(sha256, size):
        return False
    target = blob_path(sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.chmod(READ_ONLY)
    _move(staged, target)
    _sync_folder(target.parent)
    return True


def _move(staged: Path, target: Path) -> None:
    """Move atomically; from another file system by a copy beside the place."""
    try:
        os.replace(staged, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        fresh = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        try:
            shutil.copyfile(staged, fresh)
            with fresh.open("rb") as copied:
                os.fsync(copied.fileno())
            fresh.chmod(READ_ONLY)
            os.replace(fresh, target)
        finally:
            fresh.unlink(missing_ok=True)
        staged.unlink()


def blob_withdraw(sha256: str) -> None:
    """Remove content that was published for a version that did not come about."""
    blob_path(sha256).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def blob_range(sha256: str, *, start: int, end: int) -> bytes:
    """Return the bytes from start to end, both included, as far as the content goes. Raises OSError."""
    with blob_path(sha256).open("rb") as reader:
        reader.seek(start)
        return reader.read(end - start + 1)
