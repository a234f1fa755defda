"""Selectors of the registry: which versions somebody may use, and the folder of files that an engine loads."""

import os
import re
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db.models import QuerySet

from registry.access import Viewer, usable_models
from registry.blobs import blob_path, blob_present
from registry.errors import BlobMissing
from registry.models import NAME_PATTERN, Alias, Artifact, Kind, Model, Version, VersionState

PRODUCTION = "production"


@dataclass(frozen=True)
class Resolved:
    """What a reference names. alias: the one that led there, else empty; the adapter is loaded beside the version."""

    version: Version
    adapter: Version | None = None
    alias: str = ""


def models_for(*, viewer: Viewer) -> QuerySet[Model]:
    """Return the models that viewer may see, by name."""
    return Model.objects.filter(usable_models(viewer)).order_by("name")


def versions_for(*, viewer: Viewer, kind: str | None = None) -> QuerySet[Version]:
    """Return the ready versions that viewer may use, models by name and newest first; nobody signed in gets none."""
    versions = Version.objects.filter(state=VersionState.READY, model__in=models_for(viewer=viewer).order_by())
    versions = versions.select_related("model").order_by("model__name", "-number")
    return versions.filter(model__kind=kind) if kind else versions


def aliases_for(*, viewer: Viewer, kind: str | None = None) -> QuerySet[Alias]:
    """Return the aliases that lead viewer to a version they may use, by model and name."""
    usable = versions_for(viewer=viewer, kind=kind).order_by()
    rows = Alias.objects.filter(version__in=usable).select_related("version__model")
    return rows.order_by("model__name", "name")


def version_resolve(*, reference: str, user: Viewer, kind: str | None = None) -> Resolved:
    """Return what `model`, `model:version` or `model@alias` names, each also with `+adapter` behind it.

    A bare `model` is its alias `production` where there is one, else its newest ready version; with an adapter behind
    it, it is the version that the adapter was made for. An adapter is named in the same three ways. Raises
    Version.DoesNotExist, in words, for what is missing and for what user may not use alike.
    """
    return _resolve(versions_for(viewer=user), reference, kind)


def version_by_name(name: str) -> Version:
    """Return the ready version that `smollm2`, `smollm2:3` or `smollm2@production` names, for the site itself.

    Raises Version.DoesNotExist.
    """
    return _resolve(Version.objects.filter(state=VersionState.READY).select_related("model"), name, None).version


def _resolve(usable: QuerySet[Version], reference: str, kind: str | None) -> Resolved:
    base_name, plus, adapter_name = reference.partition("+")
    if not plus:
        version, alias = _named(usable.filter(model__kind=kind) if kind else usable, base_name)
        return Resolved(version, None, alias)
    adapter, _ = _named(usable.filter(model__kind=Kind.ADAPTER), adapter_name)
    bare = not {":", "@"} & set(base_name)
    if bare and adapter.parent_id and usable.filter(pk=adapter.parent_id, model__name=base_name).exists():
        return Resolved(usable.get(pk=adapter.parent_id), adapter)
    version, alias = _named(usable, base_name)
    if adapter.parent_id != version.pk:
        raise Version.DoesNotExist(f"{adapter} is not an adapter of {version}")
    return Resolved(version, adapter, alias)


def _named(usable: QuerySet[Version], name: str) -> tuple[Version, str]:
    """Return the version that a name without an adapter leads to, and the alias on the way."""
    model, colon, number = name.partition(":")
    model, at, alias = model.partition("@") if not colon else (model, "", "")
    if not re.match(NAME_PATTERN, model) or (at and not re.match(NAME_PATTERN, alias)):  # PostgreSQL takes no NUL
        raise Version.DoesNotExist(f"{name[:80]!r} does not name a version")
    versions = usable.filter(model__name=model)
    if colon:
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise Version.DoesNotExist(f"{name[:80]!r} does not name a version")
        versions = versions.filter(number=int(number))
    elif at:
        versions = versions.filter(aliases__name=alias)
    elif produced := versions.filter(aliases__name=PRODUCTION).first():
        return produced, PRODUCTION
    version = versions.order_by("-number").first()
    if version is None:
        raise Version.DoesNotExist(f"there is no ready version {name[:80]!r}")
    return version, alias


def full_name(version: Version, adapter: Version | None = None) -> str:
    """Return the name that a later version doesn't change the meaning of: `smollm2:1` or `smollm2:1+poet:1`."""
    return f"{version}+{adapter}" if adapter is not None else str(version)


def bare_versions(versions: Iterable[Version]) -> dict[str, Version]:
    """Return what each model's bare name leads to, as version_resolve does. versions: usable, with their aliases."""
    newest_first = sorted(versions, key=lambda version: -version.number)
    found = {}
    for version in newest_first:
        if any(alias.name == PRODUCTION for alias in version.aliases.all()):
            found[version.model.name] = version
    for version in newest_first:
        found.setdefault(version.model.name, version)
    return found


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
