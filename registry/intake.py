"""Takes a model in: stage and hash, derive what is missing, verify, store; a refusal leaves the disk as it was."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from django.core.exceptions import ValidationError

from inference.artifacts.errors import ArtifactError
from registry.access import Viewer
from registry.blobs import blob_publish, blob_withdraw, blobs_locked
from registry.checks import CheckResult, ChecksStopped, Report, SubjectKind, run_checks
from registry.contents import derived_files, describe, guess_kind
from registry.errors import ImportCancelled, ImportRefused
from registry.models import NAME, Blob, Kind, Version
from registry.selectors import version_folder
from registry.services.versions import (
    version_begin,
    version_publish,
    version_reject,
    version_store,
    version_with_content,
    versions_reject_interrupted,
)
from registry.staging import Progress, StagedFile, stage_derived, staging_folder

logger = logging.getLogger(__name__)

Stage = Callable[[Path, Progress | None], list[StagedFile]]
"""Fills an empty folder with a model's files and returns them. Raises ImportRefused."""


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What is to be taken in. kind: empty goes by the model's own files; by: None is the site itself.

    publish: make it ready at once when verification passes; otherwise it waits as verified. Raises ImportRefused.
    """

    name: str
    kind: str = ""
    source: str = ""
    by: Viewer | None = None
    parent: Version | None = None
    publish: bool = True

    def __post_init__(self) -> None:
        try:
            NAME(self.name)
        except ValidationError as error:
            raise ImportRefused(f"The name {self.name[:80]!r} is not allowed: {error.messages[0]}") from None
        if self.kind and self.kind not in Kind.values:
            raise ImportRefused(f"The kind {self.kind[:40]!r} is not known: use {', '.join(Kind.values)}")


@dataclass(frozen=True)
class Taken:
    """The version that holds the content now. fresh: it was made of this import, and was not there before."""

    version: Version
    fresh: bool


class Watcher:
    """Hears of an import as it goes on. What `progress` raises ends it, and so does a yes of `should_stop`."""

    def progress(self, phase: str, done: int, total: int) -> None:
        """phase: copying, verifying or publishing; done and total in bytes."""

    def began(self, version: Version) -> None:
        """Verification begins, of this version."""

    def checked(self, result: CheckResult) -> None:
        """A check has ended."""

    def should_stop(self) -> bool:
        return False


def take_in(intake: Intake, stage: Stage, watcher: Watcher) -> Taken:
    """Take a model in as the next version of intake.name; the same content under the same name is not taken twice.

    Raises ImportRefused: nothing of the model stays on disk then, and a version that was refused by verification stays
    listed as rejected, with its reason and checks; ImportCancelled.
    """
    versions_reject_interrupted()
    with staging_folder() as folder:
        files = stage(folder, watcher.progress)
        if found := version_with_content(name=intake.name, files=files):
            logger.info("%s has this content already", found)
            return Taken(found, fresh=False)
        try:
            files += [stage_derived(folder, *item) for item in derived_files(folder).items()]
            kind = Kind(intake.kind) if intake.kind else guess_kind(folder)
        except ArtifactError as error:
            raise ImportRefused(str(error)) from None
        version = version_begin(name=intake.name, kind=kind, source=intake.source, by=intake.by, parent=intake.parent)
        report: Report | None = None
        try:
            watcher.began(version)
            report = _verify(version, folder, sum(file.size for file in files), watcher)
            if report.refusals:
                raise ImportRefused(report.refusals[0].message)
            return _store(intake, version, folder, files, report, watcher)
        except BaseException as error:
            reason = getattr(error, "reason", None) or f"The import failed: {error!r}"
            version_reject(version=version, reason=reason, report=report)
            raise


def _verify(version: Version, folder: Path, total: int, watcher: Watcher) -> Report:
    """Run every check in a child process. The watcher hears of the part of the checks that are done, in bytes."""
    earlier = version.model.versions.exclude(pk=version.pk).exclude(vocabulary_sha256="").order_by("-number").first()
    base = version.parent if version.model.kind == Kind.ADAPTER else None
    try:
        found = run_checks(
            folder, kind=cast(SubjectKind, version.model.kind), base=version_folder(base) if base else None,
            earlier=earlier.vocabulary_sha256 if earlier else "", on_result=watcher.checked,
            on_progress=lambda name, number, of: watcher.progress("verifying", total * (number - 1) // of, total),
            should_stop=watcher.should_stop)
    except ChecksStopped:
        raise ImportCancelled from None
    watcher.progress("verifying", total, total)
    return found


def _store(intake: Intake, version: Version, folder: Path, files: Sequence[StagedFile], report: Report,
           watcher: Watcher) -> Taken:
    """Move the content into the store and write the artifacts, all or nothing."""
    total = sum(file.size for file in files)
    watcher.progress("publishing", 0, total)
    described = describe(folder)  # before the files are moved
    with blobs_locked():
        fresh: list[StagedFile] = []
        try:
            for file in files:
                if blob_publish(folder / file.path, sha256=file.sha256, size=file.size):
                    fresh.append(file)
            stored = version_store(version=version, files=files, report=report, description=described)
        except BaseException:
            for file in fresh:
                if not Blob.objects.filter(pk=file.sha256).exists():
                    blob_withdraw(file.sha256)
            raise
    if intake.publish and stored.pk == version.pk:
        stored = version_publish(version=stored, by=None)
    watcher.progress("publishing", total, total)
    return Taken(stored, fresh=stored.pk == version.pk)
