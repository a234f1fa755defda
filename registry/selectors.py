"""Selectors of the registry: which versions somebody may use, and the folder of files that an engine loads."""

import os
import shutil
import uuid
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from registry.blobs import blob_path, blob_present
from registry.errors import BlobMissing
from registry.models import Artifact, Version, VersionState


def versions_for(*, viewer: AbstractBaseUser | AnonymousUser, kind: str | None = None) -> QuerySet[Version]:
    """Return the ready versions that viewer may use, models by name and newest first; nobody signed in gets none."""
    versions = Version.objects.filter(state=VersionState.READY).select_related("model").order_by(
        "model__name", "-number")
    if not viewer.is_authenticated:
        return versions.none()
    return versions.filter(model__kind=kind) if kind else versions


def version_for(*, viewer: AbstractBaseUser | AnonymousUser, pk: int) -> Version:
    """Return one of versions_for by its key. Raises Version.DoesNotExist, the same for missing and forbidden."""
    return versions_for(viewer=viewer).get(pk=pk)


def version_by_name(name: str) -> Version:
    """Return the newest ready version of `smollm2`, or just `smollm2:3` if that is ready.

    Raises Version.DoesNotExist.
    """
    model, separator, number = name.partition(":")
    versions = Version.objects.filter(model__name=model, state=VersionState.READY).select_related("model")
    if separator:
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise Version.DoesNotExist(f"{name[:80]!r} does not name a version")
        versions = versions.filter(number=int(number))
    version = versions.order_by("-number").first()
    if version is None:
        raise Version.DoesNotExist(f"there is no ready version {name[:80]!r}")
    return version


def version_folder(version: Version) -> Path:
    """Return the folder with the version's files under their own names, linked to blobs; made when it isn't there.

    For a GGUF version it holds the .gguf file, whose weights are read, and the configuration, tokenizer and template
    that were derived at import, which are read instead of the metadata. Raises BlobMissing when content isn't on this
    machine.
    """
    folder: Path = settings.PARLEY_HOME / "versions" / str(version.pk)
    artifacts = list(version.artifacts.select_related("blob"))
    for artifact in artifacts:
        if not blob_present(artifact.blob_id, artifact.blob.size):
            raise BlobMissing(f"{version}: the content of {artifact.path} is not on this machine, or damaged")
    if not _is_current(folder, artifacts):
        _build(folder, artifacts)
    return folder


def _is_current(folder: Path, artifacts: list[Artifact]) -> bool:
    """Say whether each file leads to its blob: a folder may be left from a database that has been replaced since."""
    try:
        return all((folder / artifact.path).samefile(blob_path(artifact.blob_id)) for artifact in artifacts)
    except FileNotFoundError:
        return False


def _build(folder: Path, artifacts: list[Artifact]) -> None:
    """Make the folder beside its place and move it there; of several processes that do so, one wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.parent / f".{folder.name}-{uuid.uuid4().hex}"
    try:
        for artifact in artifacts:
            target = fresh / artifact.path
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(blob_path(artifact.blob_id), target)
        try:
            fresh.rename(folder)
        except OSError:  # something is there: another process was faster, or it is an old one
            if not _is_current(folder, artifacts):
                folder.rename(folder.parent / f".{folder.name}-{uuid.uuid4().hex}-old")
                fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        for old in folder.parent.glob(f".{folder.name}-*-old"):
            shutil.rmtree(old, ignore_errors=True)


def _link(blob: Path, target: Path) -> None:
    try:
        os.link(blob, target)
    except OSError:  # another file system, or one without hard links
        target.symlink_to(blob)
