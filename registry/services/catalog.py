"""Services on what is in the catalog: describe, restrict, archive, restore and delete; each leaves an audit line."""

from collections.abc import Sequence

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q

from registry.access import Viewer, require_administrator
from registry.errors import ChangeRefused
from registry.models import (
    Access,
    Action,
    Alias,
    Deployment,
    DeploymentState,
    Kind,
    Model,
    Version,
    VersionState,
)
from registry.services.audit import audit_record

MAX_TAGS = 500
HELD = (DeploymentState.LOADING, DeploymentState.LOADED, DeploymentState.UNLOADING)


def model_edit(*, model: Model, by: Viewer | None, description: str | None = None,
               tags: Sequence[str] | None = None) -> Model:
    """Change a model's description or tags; None leaves one as it is. Raises ChangeRefused, NotAllowed."""
    require_administrator(by)
    changed = {}
    if description is not None and description != model.description:
        model.description = changed["description"] = description
    if tags is not None and (text := tags_text(tags)) != model.tags:
        model.tags = changed["tags"] = text
    if changed:
        with transaction.atomic():
            model.save(update_fields=list(changed))
            audit_record(by=by, action=Action.EDIT, subject=model, words=_words(changed))
    return model


def model_access_set(*, model: Model, by: Viewer | None, access: str, groups: Sequence[Group] = ()) -> Model:
    """Say who may see and use a model: everyone, the members of groups, or administrators.

    Requests that run go on; the next one is refused. Raises ChangeRefused, NotAllowed.
    """
    require_administrator(by)
    if access not in Access.values:
        raise ChangeRefused(f"access: must be one of {', '.join(Access.values)}.")
    if access == Access.GROUPS and not groups:
        raise ChangeRefused("groups: name at least one group, or let only administrators use it.")
    with transaction.atomic():
        model.access = access
        model.save(update_fields=["access"])
        model.groups.set(groups if access == Access.GROUPS else [])
        names = ", ".join(sorted(group.name for group in groups)) if access == Access.GROUPS else ""
        audit_record(by=by, action=Action.ACCESS, subject=model, words=f"{access} {names}".strip())
    return model


def version_edit(*, version: Version, by: Viewer | None, notes: str | None = None, tags: Sequence[str] | None = None,
                 licence: str | None = None) -> Version:
    """Change what people wrote about a version; None leaves one as it is. Raises ChangeRefused, NotAllowed."""
    require_administrator(by)
    wished = {"notes": notes, "tags": None if tags is None else tags_text(tags), "licence": licence}
    changed = {name: value for name, value in wished.items() if value is not None and value != getattr(version, name)}
    if len(changed.get("licence", "")) > 200:
        raise ChangeRefused("licence: has at most 200 characters.")
    if changed:
        for name, value in changed.items():
            setattr(version, name, value)
        with transaction.atomic():
            version.save(update_fields=list(changed))
            audit_record(by=by, action=Action.EDIT, subject=version, words=_words(changed))
    return version


def tags_text(tags: Sequence[str]) -> str:
    """Return tags as they are stored: lower case, once each, in order. Raises ChangeRefused."""
    words = sorted({word.lower() for tag in tags for word in tag.split()})
    text = " ".join(words)
    if len(text) > MAX_TAGS or not text.isprintable():
        raise ChangeRefused(f"tags: at most {MAX_TAGS} characters of plain words.")
    return text


def _words(changed: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value[:200] or '(none)'}" for name, value in changed.items())


def version_archive(*, version: Version, by: Viewer | None) -> Version:
    """Take a ready version out of use; its content stays. Raises ChangeRefused when it is loaded or has an alias."""
    require_administrator(by)
    with transaction.atomic():
        version = _locked(version)
        _require_state(version, [VersionState.READY], "archived")
        _require_unused(version, "archived")
        return _set_state(version, VersionState.ARCHIVED, Action.ARCHIVE, by)


def version_restore(*, version: Version, by: Viewer | None) -> Version:
    """Make an archived version ready again. Raises ChangeRefused, NotAllowed."""
    require_administrator(by)
    with transaction.atomic():
        version = _locked(version)
        _require_state(version, [VersionState.ARCHIVED], "restored")
        return _set_state(version, VersionState.READY, Action.RESTORE, by)


def version_delete(*, version: Version, by: Viewer | None) -> Version:
    """Give up a version's content. The row and its number stay, for conversations and the history that name it.

    Content that other versions use stays; the rest is freed by the next garbage collection. Raises ChangeRefused while
    it is loaded or wished loaded, has an alias, is the base of an adapter, or is being verified; NotAllowed.
    """
    require_administrator(by)
    with transaction.atomic():
        version = _locked(version)
        _require_state(version, [VersionState.READY, VersionState.VERIFIED, VersionState.ARCHIVED,
                                 VersionState.REJECTED], "deleted")
        _require_unused(version, "deleted")
        adapter = version.children.exclude(state__in=[VersionState.DELETED, VersionState.REJECTED]).filter(
            model__kind=Kind.ADAPTER).select_related("model").first()
        if adapter is not None:
            raise ChangeRefused(f"{version} can't be deleted: {adapter} is an adapter of it.")
        Alias.objects.filter(previous=version).update(previous=None)
        version.deployments.all().delete()
        version.artifacts.all().delete()
        return _set_state(version, VersionState.DELETED, Action.DELETE, by)


def _locked(version: Version) -> Version:
    Model.objects.select_for_update(no_key=True).get(pk=version.model_id)
    return Version.objects.select_related("model").get(pk=version.pk)


def _require_state(version: Version, states: Sequence[VersionState], done: str) -> None:
    if version.state not in states:
        raise ChangeRefused(f"{version} is {version.get_state_display().lower()} and can't be {done}.")


def _require_unused(version: Version, done: str) -> None:
    held = Deployment.objects.filter(Q(version=version) | Q(adapters=version)).filter(
        Q(wanted=True) | Q(state__in=HELD)).exclude(state=DeploymentState.FAILED).first()
    if held is not None:
        raise ChangeRefused(f"{version} can't be {done} while it is loaded or about to be ({held}). Unload it first.")
    if alias := Alias.objects.select_related("model").filter(version=version).first():
        raise ChangeRefused(f"{version} can't be {done} while {alias} points at it. Move the alias first.")


def _set_state(version: Version, state: VersionState, action: Action, by: Viewer | None) -> Version:
    version.state = state
    version.save(update_fields=["state"])
    audit_record(by=by, action=action, subject=version)
    return version
