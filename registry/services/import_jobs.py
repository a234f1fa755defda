"""Services of background imports: ask for one, run it under a lease, cancel it, find those that were interrupted.

Whoever asks for one also has it run: `webapp.serving.dispatch.import_dispatch` sends its id to the queue of imports.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from registry.access import Viewer, is_administrator, require_administrator
from registry.checks import CheckResult
from registry.chunks import chunks_remove
from registry.errors import ImportCancelled, ImportRefused, RegistryRefused
from registry.intake import Intake, Watcher, take_in
from registry.models import ImportJob, ImportState, Upload, Version
from registry.paths import checked_source
from registry.services.versions import version_reject
from registry.staging import Progress, StagedFile, stage
from registry.upload_staging import stage_upload

HOLD_SECONDS = 20
MAX_ATTEMPTS = 3
PROGRESS_SECONDS = 0.25


def import_create(*, by: User, name: str, path: str = "", upload: Upload | None = None, kind: str = "",
                  parent: Version | None = None, publish: bool = True) -> ImportJob:
    """Ask for a model to be taken in, from a path under an import root or from a finished upload.

    kind: empty goes by the model's files. parent: the version it was made from (an adapter's base). publish: false
    leaves it verified until `version_publish`. Raises ImportRefused, NotAllowed.
    """
    require_administrator(by)
    Intake(name=name, kind=kind)
    source = "" if upload else str(checked_source(path))
    return ImportJob.objects.create(owner=by, name=name, path=source, upload=upload, kind=kind, parent=parent,
                                    publish=publish)


def import_for(*, viewer: Viewer, pk: UUID | str) -> ImportJob:
    """Return an import; administrators see all. Raises ImportJob.DoesNotExist."""
    if not is_administrator(viewer):
        raise ImportJob.DoesNotExist
    return ImportJob.objects.select_related("version__model", "upload", "owner").get(pk=pk)


def import_cancel(*, job: ImportJob, by: User) -> ImportJob:
    """Cancel an import; one that runs ends within seconds and leaves nothing. One that has ended stays as it is."""
    require_administrator(by)
    rows = ImportJob.objects.filter(pk=job.pk)
    rows.filter(state=ImportState.RUNNING).update(cancel_requested=True)
    ended = rows.filter(state=ImportState.QUEUED).update(state=ImportState.CANCELLED, ended_at=Now())
    job.refresh_from_db()
    if ended and job.upload_id:
        chunks_remove(job.upload_id)
    return job


def import_claim(*, pk: UUID | str, holder: str) -> ImportJob | None:
    """Take a queued import, or one whose worker is gone; None when there is nothing to do for it."""
    free = Q(state=ImportState.QUEUED) | Q(state=ImportState.RUNNING, held_until__lt=Now())
    taken = ImportJob.objects.filter(free, pk=pk).update(
        state=ImportState.RUNNING, held_by=holder, attempt=F("attempt") + 1, phase="", progress_done=0,
        held_until=Now() + timedelta(seconds=HOLD_SECONDS))
    if not taken:
        return None
    return ImportJob.objects.select_related("owner", "upload", "parent__model", "version__model").get(pk=pk)


def import_keep(*, job: ImportJob) -> bool:
    """Renew the lease; false when it is lost or the import was cancelled."""
    return ImportJob.objects.filter(pk=job.pk, held_by=job.held_by, attempt=job.attempt, state=ImportState.RUNNING,
                                    cancel_requested=False).update(
        held_until=Now() + timedelta(seconds=HOLD_SECONDS)) == 1


def import_run(*, job: ImportJob, cancelled: Callable[[], bool] = lambda: False) -> ImportJob:
    """See a claimed import through and write how it ended. cancelled: asked often, ends it without a trace."""
    watcher = _JobWatcher(job, cancelled)
    try:
        if job.version is not None:  # of an attempt that was cut off
            version_reject(version=job.version, reason="The import was interrupted.")
        if job.attempt > MAX_ATTEMPTS:
            raise ImportRefused(f"Its worker ended {MAX_ATTEMPTS} times before it was done.")
        intake = Intake(name=job.name, kind=job.kind, source=job.path or f"upload {job.upload_id}", by=job.owner,
                        parent=job.parent, publish=job.publish)
        taken = take_in(intake, _stage(job), watcher)
        if taken.fresh:
            return _end(job, ImportState.DONE, version=taken.version)
        return _end(job, ImportState.REFUSED, version=taken.version,
                    reason=f"The same content is there already: {taken.version}.")
    except RegistryRefused as refusal:
        return _end(job, ImportState.REFUSED, reason=refusal.reason)
    except ImportCancelled:
        return _end(job, ImportState.CANCELLED, reason=ImportCancelled.reason)
    except Exception as error:
        _end(job, ImportState.REFUSED, reason=f"The import failed: {type(error).__name__}: {error}")
        raise


def imports_waiting() -> list[str]:
    """Return the ids of imports that are to run and that nobody runs: queued for a while, or left by a dead worker."""
    lost = Q(state=ImportState.QUEUED, created_at__lt=Now() - timedelta(seconds=5)) | Q(
        state=ImportState.RUNNING, held_until__lt=Now())
    return [str(pk) for pk in ImportJob.objects.filter(lost).values_list("pk", flat=True)[:20]]


def _stage(job: ImportJob) -> Callable[[Path, Progress | None], list[StagedFile]]:
    if job.upload is not None:
        upload = job.upload
        return lambda folder, progress: stage_upload(upload, folder, progress)
    path = checked_source(job.path)
    return lambda folder, progress: stage(path, folder, progress)


def _end(job: ImportJob, state: ImportState, *, reason: str = "", version: Version | None = None) -> ImportJob:
    """Write the end, guarded by the attempt; the chunks of an upload aren't needed any more."""
    changes = {"version": version} if version else {}
    with transaction.atomic():
        ended = ImportJob.objects.filter(pk=job.pk, attempt=job.attempt, state=ImportState.RUNNING).update(
            state=state, reason=reason, phase="", ended_at=Now(), held_by="", held_until=None, **changes)
    if ended and job.upload_id:
        chunks_remove(job.upload_id)
    job.refresh_from_db()
    return job


class _JobWatcher(Watcher):
    """Writes into the job's row what happens, a few times a second, and ends a cancelled import."""

    def __init__(self, job: ImportJob, cancelled: Callable[[], bool]) -> None:
        self._row = ImportJob.objects.filter(pk=job.pk, attempt=job.attempt)
        self._cancelled, self._phase, self._at = cancelled, "", 0.0
        self._results: list[dict[str, object]] = []

    def should_stop(self) -> bool:
        return self._cancelled()

    def progress(self, phase: str, done: int, total: int) -> None:
        if self._cancelled():
            raise ImportCancelled
        now = time.monotonic()
        if phase == self._phase and now - self._at < PROGRESS_SECONDS and done < total:
            return
        self._phase, self._at = phase, now
        self._row.update(phase=phase, progress_done=done, progress_total=total)

    def began(self, version: Version) -> None:
        self._row.update(version=version)

    def checked(self, result: CheckResult) -> None:
        self._results.append(asdict(result))
        self._row.update(checks={"results": self._results})
