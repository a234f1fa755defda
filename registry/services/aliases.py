"""Services on aliases: point one at a version, move it back, remove it; who names one follows at the next request."""

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models.functions import Now

from registry.access import Viewer, require_administrator
from registry.errors import ChangeRefused
from registry.models import NAME, Action, Alias, Model, Version, VersionState
from registry.services.audit import audit_record


def alias_set(*, model: Model, name: str, version: Version, by: Viewer | None) -> Alias:
    """Point `model@name` at one of the model's ready versions; the alias is made when there is none of that name.

    Raises ChangeRefused for a bad name, a version of another model, and one that isn't ready; NotAllowed.
    """
    require_administrator(by)
    try:
        NAME(name)
    except ValidationError as error:
        raise ChangeRefused(f"The alias {name[:80]!r} is not allowed: {error.messages[0]}") from None
    with transaction.atomic():
        Model.objects.select_for_update(no_key=True).get(pk=model.pk)
        version = _usable(model, version)
        alias = Alias.objects.select_related("version__model").filter(model=model, name=name).first()
        if alias is None:
            alias = Alias(model=model, name=name, version=version)
            words = f"@{name} → {version}"
        elif alias.version_id == version.pk:
            return alias
        else:
            words = f"@{name}: {alias.version} → {version}"
            alias.previous, alias.version = alias.version, version
        return _moved(alias, words, by)


def alias_back(*, alias: Alias, by: Viewer | None) -> Alias:
    """Move an alias back to where it pointed before; twice is where it was. Raises ChangeRefused, NotAllowed."""
    require_administrator(by)
    with transaction.atomic():
        Model.objects.select_for_update(no_key=True).get(pk=alias.model_id)
        alias = Alias.objects.select_related("model", "version__model", "previous__model").get(pk=alias.pk)
        if alias.previous is None:
            raise ChangeRefused(f"{alias} was never moved.")
        _usable(alias.model, alias.previous)
        words = f"@{alias.name}: {alias.version} → {alias.previous} (back)"
        alias.previous, alias.version = alias.version, alias.previous
        return _moved(alias, words, by)


def alias_remove(*, alias: Alias, by: Viewer | None) -> None:
    """Remove an alias; the versions stay. Raises NotAllowed."""
    require_administrator(by)
    with transaction.atomic():
        audit_record(by=by, action=Action.ALIAS_REMOVE, subject=alias.version,
                     words=f"@{alias.name} pointed at {alias.version}")
        alias.delete()


def _usable(model: Model, version: Version) -> Version:
    version = Version.objects.select_related("model").get(pk=version.pk)
    if version.model_id != model.pk:
        raise ChangeRefused(f"{version} is not a version of {model}.")
    if version.state != VersionState.READY:
        raise ChangeRefused(f"{version} is {version.get_state_display().lower()}; an alias points at a ready version.")
    return version


def _moved(alias: Alias, words: str, by: Viewer | None) -> Alias:
    alias.moved_by = by  # type: ignore[assignment]
    alias.moved_at = Now()
    alias.save()
    audit_record(by=by, action=Action.ALIAS, subject=alias.version, words=words)
    alias.refresh_from_db(fields=["moved_at"])
    return alias
