"""The service that takes a model in: copy and hash, verify, publish; a refusal leaves the disk as it was."""

import logging
from collections.abc import Sequence
from pathlib import Path

from django.core.exceptions import ValidationError

from inference.artifacts.errors import ArtifactError
from registry.blobs import blob_publish, blob_withdraw, blobs_locked
from registry.contents import derived_files, guess_kind
from registry.errors import ImportRefused
from registry.models import NAME, Blob, Kind, Version
from registry.services.versions import (
    version_begin,
    version_publish,
    version_reject,
    version_with_content,
    versions_reject_interrupted,
)
from registry.staging import Progress, StagedFile, stage, stage_derived, staging_folder
from registry.verification import verify

__all__ = ["ImportRefused", "version_import"]

logger = logging.getLogger(__name__)


def version_import(
    *, path: Path, name: str, kind: str | None = None, on_progress: Progress | None = None
) -> Version:
    """Import a folder with safetensors, or a .gguf file, as the next version of the model called name.

    The same content under the same name gives the version that is there already. kind: chat, embedding or rerank; None
    goes by the model's own files. on_progress: called with phase, bytes done, bytes in all.
    Return the ready version. Raises ImportRefused: nothing of the model stays on disk then, and a version that was
    refused by verification stays listed as rejected, with the reason.
    """
    _check_names(name, kind)
    versions_reject_interrupted()
    with staging_folder() as folder:
        files = stage(path.resolve(), folder, on_progress)
        if found := version_with_content(name=name, files=files):
            logger.info("%s has this content already", found)
            return found
        try:
            files += [stage_derived(folder, *item) for item in derived_files(folder).items()]
            known_kind = Kind(kind) if kind else guess_kind(folder)
        except ArtifactError as error:
            raise ImportRefused(str(error)) from None
        version = version_begin(name=name, kind=known_kind, source=str(path))
        try:
            return _verify_and_publish(version, known_kind, folder, files, on_progress)
        except BaseException as error:
            reason = error.reason if isinstance(error, ImportRefused) else f"The import failed: {error!r}"
            version_reject(version=version, reason=reason)
            raise


def _verify_and_publish(
    version: Version, kind: Kind, folder: Path, files: Sequence[StagedFile], on_progress: Progress | None
) -> Version:
    total = sum(file.size for file in files)
    if on_progress:
        on_progress("verifying", 0, total)
    facts = verify(folder, kind)
    if on_progress:
        on_progress("verifying", total, total)
    with blobs_locked():
        fresh = [file for file in files if blob_publish(folder / file.path, sha256=file.sha256, size=file.size)]
        try:
            return version_publish(version=version, files=files, facts=facts)
        except BaseException:
            for file in fresh:
                if not Blob.objects.filter(pk=file.sha256).exists():
                    blob_withdraw(file.sha256)
            raise


def _check_names(name: str, kind: str | None) -> None:
    try:
        NAME(name)
    except ValidationError as error:
        raise ImportRefused(f"The name {name[:80]!r} is not allowed: {error.messages[0]}") from None
    if kind and kind not in Kind.values:
        raise ImportRefused(f"The kind {kind[:40]!r} is not known: use {', '.join(Kind.values)}")
