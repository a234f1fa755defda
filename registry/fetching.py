"""Takes content that this machine lacks from a shared folder, or from the site by SHA-256 in bounded ranges.

What arrives is kept in PARLEY_STAGING/pulls until it is whole, so that a pull that was cut off goes on where it was; it
enters the store only when its SHA-256 is its name.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings
from django.template.defaultfilters import filesizeformat

from registry.blobs import blob_present, blob_publish
from registry.errors import BlobMissing
from registry.models import Blob, Version

RANGE_BYTES = 4 * 1024 * 1024
READ_BYTES = 1024 * 1024
TIMEOUT_SECONDS = 30.0
TRIES = 5
PATH = "nodes/blobs/"

OnBytes = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


def blobs_fetch(version: Version, *, on_progress: OnBytes = lambda done, total: None) -> int:
    """Make sure that the version's content is on this machine; return the bytes that were fetched.

    Raises BlobMissing when something can't be had, saying what and why.
    """
    blobs = {artifact.blob_id: artifact.blob for artifact in version.artifacts.select_related("blob")}
    missing = [blob for blob in blobs.values() if not blob_present(blob.pk, blob.size)]
    if not missing:
        return 0
    source = settings.PARLEY_BLOB_SOURCE
    if not source:
        raise BlobMissing(f"{version}: {len(missing)} of its files are not on this machine, or damaged; set "
                          "PARLEY_BLOB_SOURCE to a shared folder or to the site's address to fetch them")
    total, done = sum(blob.size for blob in missing), 0
    for blob in missing:
        def report(bytes_of_it: int, before: int = done) -> None:
            on_progress(before + bytes_of_it, total)

        with _pull_file(blob) as part:
            fetch = _from_site if source.startswith(("http://", "https://")) else _from_folder
            try:
                fetch(source, blob, part, report)
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                why = f"the disk is full, {filesizeformat(total)} are to be fetched" if full else str(error)
                raise BlobMissing(f"{version}: {blob} can't be fetched from {_shown(source)}: {why}") from None
            _publish(version, blob, part)
        done += blob.size
    return total


def _shown(source: str) -> str:
    return source.rpartition("@")[2]  # without a password


@contextmanager
def _pull_file(blob: Blob) -> Iterator[Path]:
    """Yield the file that the content is gathered in; of two processes that fetch the same, the second waits."""
    folder: Path = settings.PARLEY_STAGING / "pulls"
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / f"{blob.pk}.pull", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder / f"{blob.pk}.part"
    finally:
        os.close(handle)


def _from_folder(source: str, blob: Blob, part: Path, report: Callable[[int], None]) -> None:
    """Copy from a shared folder that is laid out as the store. Raises OSError."""
    with (Path(source) / blob.pk[:2] / blob.pk).open("rb") as reader, part.open("wb") as writer:
        done = 0
        while piece := reader.read(READ_BYTES):
            writer.write(piece)
            done += len(piece)
            report(done)
        writer.flush()
        os.fsync(writer.fileno())


def _from_site(source: str, blob: Blob, part: Path, report: Callable[[int], None]) -> None:
    """Ask the site for one range after the other, from where an earlier pull ended. Raises OSError."""
    with part.open("ab") as writer:
        done = min(writer.tell(), blob.size)
        writer.truncate(done)
        tries = 0
        while done < blob.size:
            try:
                done += _range(source, blob, done, writer)
                tries = 0
                report(done)
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                writer.truncate(done)
                tries += 1
                final = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
                if final or tries >= TRIES:
                    raise
                time.sleep(min(0.2 * 2**tries, 5.0))
        writer.flush()
        os.fsync(writer.fileno())


def _range(source: str, blob: Blob, start: int, writer: IO[bytes]) -> int:
    """Append one range to the file and return its length. Raises URLError, OSError."""
    end = min(start + RANGE_BYTES, blob.size) - 1
    request = urllib.request.Request(f"{source.rstrip('/')}/{PATH}{blob.pk}", headers={
        "Range": f"bytes={start}-{end}", "Authorization": f"Bearer {settings.PARLEY_NODE_TOKEN}"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        body: bytes = answer.read(end - start + 2)
    if answer.status != 206 or len(body) != end - start + 1:
        raise ConnectionError(f"the site answered {answer.status} with {len(body):,} of {end - start + 1:,} bytes")
    writer.write(body)
    writer.flush()
    return len(body)


def _publish(version: Version, blob: Blob, part: Path) -> None:
    digest = hashlib.sha256()
    with part.open("rb") as reader:
        while piece := reader.read(READ_BYTES):
            digest.update(piece)
    if digest.hexdigest() != blob.pk:
        with contextlib.suppress(OSError):
            part.unlink()
        raise BlobMissing(f"{version}: what was fetched as {blob} has another SHA-256; it was thrown away")
    blob_publish(part, sha256=blob.pk, size=blob.size)
    part.unlink(missing_ok=True)
