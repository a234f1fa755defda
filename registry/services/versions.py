"""Services on versions: begin one, publish it as ready, or reject it; each is one transaction."""

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from registry.contents import DERIVED_NAMES, role_of
from registry.errors import ImportRefused
from registry.models import Artifact, Blob, Kind, Model, Version, VersionState
from registry.staging import StagedFile
from registry.verification import Facts

STALE_AFTER = timedelta(hours=1)


def version_begin(*, name: str, kind: Kind, source: str) -> Version:
    """Create the next version of a model, state verifying; the model too if it is new.

    Numbers count up from the largest ever given. Raises ImportRefused when the model is of another kind.
    """
    with transaction.atomic():
        Model.objects.get_or_create(name=name, defaults={"kind": kind})
        model = Model.objects.select_for_update().get(name=name)  # whoever holds this row gives the next number
        if model.kind != kind:
            raise ImportRefused(f"{name} is a model for {model.kind}; a version for {kind} needs another name")
        last: int | None = model.versions.aggregate(last=Max("number"))["last"]
        return Version.objects.create(model=model, number=(last or 0) + 1, state=VersionState.VERIFYING,
                                      source=source[:500])


def version_publish(*, version: Version, files: Sequence[StagedFile], facts: Facts) -> Version:
    """Make a verifying version ready, with its artifacts. The blobs are in the store already.

    Return the version that holds this content: when another import of the same content was faster, that one, and this
    one is rejected as its double. Raises ImportRefused when the version is no longer verifying.
    """
    with transaction.atomic():
        Model.objects.select_for_update().get(pk=version.model_id)
        if double := version_with_content(name=version.model.name, files=files):
            version_reject(version=version, reason=f"Has the same content as {double}.")
            return double
        # Artifacts first, then the state: a reader never sees a ready version without its files.
        for file in files:
            blob, _ = Blob.objects.get_or_create(sha256=file.sha256, defaults={"size": file.size})
            Artifact.objects.create(version=version, path=file.path, role=role_of(file.path), blob=blob)
        updated = Version.objects.filter(pk=version.pk, state=VersionState.VERIFYING).update(
            state=VersionState.READY, parameters=facts.parameters, context_length=facts.context_length)
        if not updated:
            raise ImportRefused(f"{version} is no longer being verified")
    version.refresh_from_db()
    return version


def version_reject(*, version: Version, reason: str) -> None:
    """End a verifying version as rejected. Its number stays taken, its reason stays readable."""
    Version.objects.filter(pk=version.pk, state=VersionState.VERIFYING).update(
        state=VersionState.REJECTED, reason=reason)


def versions_reject_interrupted() -> int:
    """Reject versions whose verification was cut off, by a crash for one; return how many."""
    return Version.objects.filter(state=VersionState.VERIFYING, created_at__lt=Now() - STALE_AFTER).update(
        state=VersionState.REJECTED, reason="The import was interrupted.")


def version_with_content(*, name: str, files: Sequence[StagedFile]) -> Version | None:
    """Return the newest ready version of a model that was made from exactly these files, or None.

    Files that were derived at import don't count where the source did not have them.
    """
    wanted = {(file.path, file.sha256) for file in files}
    given = {file.path for file in files}
    digests = {file.sha256 for file in files}
    candidates = Version.objects.filter(model__name=name, state=VersionState.READY, artifacts__blob_id__in=digests)
    for version in candidates.distinct().order_by("-number").prefetch_related("artifacts"):
        held = {(artifact.path, artifact.blob_id) for artifact in version.artifacts.all()
                if artifact.path in given or artifact.path not in DERIVED_NAMES}
        if held == wanted:
            return version
    return None
