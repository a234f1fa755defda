"""Services on versions: begin one, store what was verified, publish it, or reject it; each is one transaction."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from registry.access import Viewer, require_administrator
from registry.checks import Report
from registry.contents import DERIVED_NAMES, Description, role_of
from registry.errors import ChangeRefused, ImportRefused
from registry.models import Action, Artifact, Blob, Kind, Model, Version, VersionState
from registry.services.audit import audit_record
from registry.staging import StagedFile

STALE_AFTER = timedelta(hours=1)
WITH_CONTENT = (VersionState.READY, VersionState.VERIFIED, VersionState.ARCHIVED)


def version_begin(*, name: str, kind: Kind, source: str, by: Viewer | None = None,
                  parent: Version | None = None) -> Version:
    """Create the next version of a model, state verifying; the model too if it is new.

    Numbers count up from the largest ever given: a deleted version keeps its row. parent: what it was made from; an
    adapter needs one. Raises ImportRefused when the model is of another kind.
    """
    if kind == Kind.ADAPTER and parent is None:
        raise ImportRefused("An adapter needs the version that it was made for: give its parent")
    with transaction.atomic():
        Model.objects.get_or_create(name=name, defaults={"kind": kind})
        model = Model.objects.select_for_update(no_key=True).get(name=name)  # its holder gives the next number
        if model.kind != kind:
            raise ImportRefused(f"{name} is a model for {model.kind}; a version for {kind} needs another name")
        last: int | None = model.versions.aggregate(last=Max("number"))["last"]
        version = Version.objects.create(model=model, number=(last or 0) + 1, state=VersionState.VERIFYING,
                                         source=source[:500], parent=parent)
        audit_record(by=by, action=Action.IMPORT, subject=version, words=f"from {source}" if source else "")
    return version


def version_store(*, version: Version, files: Sequence[StagedFile], report: Report,
                  description: Description) -> Version:
    """Make a verifying version verified, with its artifacts. The blobs are in the store already.

    Return the version that holds this content: when another import of the same content was faster, that one, and this
    one is rejected as its double. Raises ImportRefused when the version is no longer verifying.
    """
    with transaction.atomic():
        Model.objects.select_for_update(no_key=True).get(pk=version.model_id)
        if double := version_with_content(name=version.model.name, files=files):
            version_reject(version=version, reason=f"Has the same content as {double}.")
            return double
        # Artifacts first, then the state: a reader never sees a version without its files.
        for file in files:
            blob, _ = Blob.objects.get_or_create(sha256=file.sha256, defaults={"size": file.size})
            Artifact.objects.create(version=version, path=file.path, role=role_of(file.path), blob=blob)
        updated = Version.objects.filter(pk=version.pk, state=VersionState.VERIFYING).update(
            state=VersionState.VERIFIED, parameters=report.facts.parameters,
            context_length=report.facts.context_length, vocabulary_sha256=report.facts.vocabulary_digest,
            facts=asdict(report.facts), checks=report.to_dict(), sampling=description.sampling,
            licence=description.licence)
        if not updated:
            raise ImportRefused(f"{version} is no longer being verified")
    version.refresh_from_db()
    return version


def version_publish(*, version: Version, by: Viewer | None) -> Version:
    """Make a verified version ready for use; a ready one stays so. Raises ChangeRefused, NotAllowed."""
    require_administrator(by)
    with transaction.atomic():
        changed = Version.objects.filter(pk=version.pk, state=VersionState.VERIFIED).update(state=VersionState.READY)
        version.refresh_from_db()
        if changed:
            audit_record(by=by, action=Action.PUBLISH, subject=version)
    if version.state != VersionState.READY:
        raise ChangeRefused(f"{version} is {version.get_state_display().lower()}; only a verified one is published.")
    return version


def version_reject(*, version: Version, reason: str, report: Report | None = None) -> None:
    """End a verifying version as rejected. Its number stays taken, its reason and checks stay readable."""
    with transaction.atomic():
        rejected = Version.objects.filter(pk=version.pk, state=VersionState.VERIFYING).update(
            state=VersionState.REJECTED, reason=reason, checks=report.to_dict() if report else {})
        if rejected:
            audit_record(by=None, action=Action.REFUSE, subject=version, words=reason)


def versions_reject_interrupted() -> int:
    """Reject versions whose verification was cut off, by a crash for one; return how many."""
    stale = Version.objects.filter(state=VersionState.VERIFYING, created_at__lt=Now() - STALE_AFTER)
    return stale.exclude(imports__state__in=["queued", "running"]).update(
        state=VersionState.REJECTED, reason="The import was interrupted.")


def version_with_content(*, name: str, files: Sequence[StagedFile]) -> Version | None:
    """Return the newest verified or published version of a model that was made from exactly these files, or None.

    Files that were derived at import don't count where the source did not have them.
    """
    wanted = {(file.path, file.sha256) for file in files}
    given = {file.path for file in files}
    digests = {file.sha256 for file in files}
    candidates = Version.objects.filter(model__name=name, state__in=WITH_CONTENT, artifacts__blob_id__in=digests)
    for version in candidates.distinct().order_by("-number").prefetch_related("artifacts").select_related("model"):
        held = {(artifact.path, artifact.blob_id) for artifact in version.artifacts.all()
                if artifact.path in given or artifact.path not in DERIVED_NAMES}
        if held == wanted:
            return version
    return None
