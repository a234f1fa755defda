"""Garbage and damage in the content store: what no version uses is freed, what isn't what its name says is found."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from registry.blobs import blob_path, blobs_locked
from registry.models import Artifact, Blob, Version, VersionState
from registry.services.uploads import uploads_expire
from registry.staging import staging_clean

READ_BYTES = 4 * 1024 * 1024


@dataclass(kw_only=True)
class Garbage:
    """What is freed. Bytes on the store's disk; leftovers: folders of versions, stagings and uploads that are over."""

    blobs: list[str] = field(default_factory=list)
    blob_bytes: int = 0
    folders: list[str] = field(default_factory=list)
    stagings: int = 0
    uploads: int = 0


def garbage_collect(*, dry_run: bool = False) -> Garbage:
    """Free content that no artifact names, files of the store without a row, and what is left of the dead.

    Nothing that an import is about to rely on is touched: both hold the store's lock. dry_run: only say what.
    """
    found = Garbage()
    with blobs_locked():
        used = set(Artifact.objects.values_list("blob_id", flat=True))
        for sha256, path in _stored():
            if sha256 not in used:
                found.blobs.append(sha256)
                found.blob_bytes += path.stat().st_size
                if not dry_run:
                    path.unlink()
        unused = Blob.objects.exclude(pk__in=Artifact.objects.values("blob_id"))
        if not dry_run:
            unused.delete()
    found.folders = folders_collect(dry_run=dry_run)
    if not dry_run:
        found.stagings = staging_clean()
        found.uploads = uploads_expire()
    return found


def folders_collect(*, dry_run: bool = False) -> list[str]:
    """Remove this machine's folders of versions that are gone, whose links keep content; return their names."""
    root: Path = settings.PARLEY_HOME / "versions"
    if not root.is_dir():
        return []
    kept = set(map(str, Version.objects.exclude(
        state__in=[VersionState.DELETED, VersionState.REJECTED]).values_list("pk", flat=True)))
    gone = [path for path in root.iterdir() if path.is_dir() and path.name.isdecimal() and path.name not in kept]
    for path in gone:
        if not dry_run:
            shutil.rmtree(path, ignore_errors=True)
    return sorted(path.name for path in gone)


def _stored() -> Iterator[tuple[str, Path]]:
    root: Path = settings.PARLEY_BLOBS
    for path in sorted(root.glob("??/*")):
        if path.is_file():
            yield path.name, path


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A blob that isn't what it should be: missing, of another size or content. used_by: the artifacts that are it."""

    sha256: str
    what: str
    used_by: tuple[str, ...]


def blobs_damaged(on_progress: Callable[[int, int], None] | None = None) -> Iterator[Damage]:
    """Read every blob that versions use and yield those that are damaged. on_progress: bytes read, bytes in all."""
    blobs = list(Blob.objects.filter(artifacts__isnull=False).distinct().order_by("pk"))
    done, total = 0, sum(blob.size for blob in blobs)
    for blob in blobs:
        if what := _damage(blob):
            names = Artifact.objects.filter(blob=blob).select_related("version__model")
            yield Damage(sha256=blob.pk, what=what, used_by=tuple(sorted(str(row) for row in names)))
        done += blob.size
        if on_progress:
            on_progress(done, total)


def _damage(blob: Blob) -> str:
    path = blob_path(blob.pk)
    try:
        size = path.stat().st_size
        if size != blob.size:
            return f"has {size:,} bytes instead of {blob.size:,}"
        digest = hashlib.sha256()
        with path.open("rb") as reader:
            while piece := reader.read(READ_BYTES):
                digest.update(piece)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"can't be read ({error.strerror})"
    return "" if digest.hexdigest() == blob.pk else "has other content than its name says"
