"""What people wish of deployments: load, load by use, change settings, unload, remove. The nodes drive to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from inference.spec import SpecError
from registry.access import Viewer, require_administrator
from registry.deployment_settings import apply_settings
from registry.errors import ChangeRefused, LoadRefused
from registry.fit import require_fit
from registry.models import Action, Deployment, DeploymentState, Kind, Version, VersionState
from registry.services.audit import audit_record

HELD = (DeploymentState.LOADING, DeploymentState.LOADED, DeploymentState.UNLOADING)


def deployment_load(*, version: Version, by: Viewer | None = None, node: str = "",
                    settings: Mapping[str, Any] | None = None,
                    adapters: Sequence[Version] | None = None) -> Deployment:
    """Wish that the version be loaded, on one machine or on any. An earlier failure is forgotten and tried again.

    settings: fields of Deployment by name, as in `registry.deployment_settings`; those that aren't given stay as they
    are, None takes the default. adapters: LoRA adapters made for this version; None leaves them. A loaded version whose
    engine settings change is loaded anew; one that is being unloaded is loaded again. by: None is the site itself.
    Raises SpecError (naming the field), LoadRefused with the plan's arithmetic when no machine has room, NotAllowed.
    """
    require_administrator(by)
    _require_loadable(version)
    with transaction.atomic():
        deployment = _locked(version, node)
        changed = apply_settings(deployment, settings or {})
        asked_anew = not deployment.wanted or deployment.pk is None or deployment.state == DeploymentState.FAILED
        if asked_anew or changed:
            _require_room(deployment)
        if deployment.state == DeploymentState.FAILED:
            deployment.state, deployment.reason, deployment.phase = DeploymentState.UNLOADED, "", ""
            changed += ["state", "reason", "phase"]
        deployment.wanted, deployment.force_unload = True, False
        deployment.save(update_fields=[*changed, "wanted", "force_unload"] if deployment.pk else None)
        _set_adapters(deployment, adapters)
        if asked_anew:
            words = f"on {node or 'any machine'}" + (f", {_settings_words(settings)}" if settings else "")
            audit_record(by=by, action=Action.LOAD, subject=version, words=words)
        elif changed:
            audit_record(by=by, action=Action.SETTINGS, subject=version, words=_settings_words(settings or {}))
    deployment.refresh_from_db()
    return deployment


def deployment_pick(*, version: Version, adapter: Version | None = None) -> None:
    """Have a version loaded because somebody uses it, as far as its policy allows; nothing happens when it is wished.

    A version that was never deployed is loaded with the default settings. adapter: what is to be loaded beside it: a
    deployment that has it not is not changed by use. Raises LoadRefused, in words for the user.
    """
    _require_loadable(version)
    rows = list(Deployment.objects.filter(version=version))
    if adapter is not None and rows:
        rows = list(Deployment.objects.filter(version=version, adapters=adapter))
        if not rows:
            raise LoadRefused(f"It is not deployed with the adapter {adapter}; an administrator has to add it.")
    if any(row.wanted and row.state != DeploymentState.FAILED for row in rows):
        return
    if any(row.state == DeploymentState.UNLOADING for row in rows):
        raise LoadRefused("It is being unloaded right now. Choose another model, or try again in a moment.")
    allowed = [row for row in rows if row.load_on_pick and row.state != DeploymentState.FAILED]
    if rows and not allowed:
        raise LoadRefused("It is not loaded, and only an administrator may load it.")
    adapters = None if adapter is None or rows else [adapter]
    deployment_load(version=version, node=allowed[0].node if allowed else "", adapters=adapters)


def deployment_configure(*, deployment: Deployment, by: Viewer | None, settings: Mapping[str, Any],
                         adapters: Sequence[Version] | None = None) -> Deployment:
    """Change settings without asking for loading, also ahead of the first; what is loaded with others is loaded anew.

    Raises SpecError, LoadRefused (for what is loaded and would not fit any more), NotAllowed.
    """
    require_administrator(by)
    with transaction.atomic():
        deployment = _locked(deployment.version, deployment.node)
        changed = apply_settings(deployment, settings)
        if changed or deployment.pk is None:
            if deployment.wanted:
                _require_room(deployment)
            deployment.save(update_fields=changed if deployment.pk else None)
            audit_record(by=by, action=Action.SETTINGS, subject=deployment.version, words=_settings_words(settings))
        _set_adapters(deployment, adapters)
    return deployment


def deployment_unload(*, deployment: Deployment, by: Viewer | None = None, force: bool = False) -> None:
    """Wish that it be unloaded. Replies that are being written are finished first; with force they end, with a reason.

    Asked again with force while it drains, it ends at once. Raises NotAllowed.
    """
    require_administrator(by)
    with transaction.atomic():
        _lock(deployment.version_id)
        rows = Deployment.objects.filter(pk=deployment.pk)
        changed = rows.filter(Q(wanted=True) | Q(force_unload=False)).update(wanted=False, force_unload=force)
        rows.filter(state=DeploymentState.FAILED).update(state=DeploymentState.UNLOADED, reason="")
        rows.filter(Q(held_until=None) | Q(held_until__lt=Now())).update(
            state=DeploymentState.UNLOADED, force_unload=False)
        if changed:
            audit_record(by=by, action=Action.UNLOAD, subject=deployment.version, words="by force" if force else "")


def deployment_remove(*, deployment: Deployment, by: Viewer | None) -> None:
    """Forget a deployment and its settings. Raises ChangeRefused while it is loaded or wished, NotAllowed."""
    require_administrator(by)
    with transaction.atomic():
        _lock(deployment.version_id)
        row = Deployment.objects.get(pk=deployment.pk)
        if row.state in HELD or (row.wanted and row.state != DeploymentState.FAILED):
            raise ChangeRefused(f"{deployment} is loaded or about to be. Unload it first.")
        audit_record(by=by, action=Action.SETTINGS, subject=deployment.version, words=f"removed {deployment}")
        row.delete()


def _lock(version_pk: int) -> None:
    """Have everybody who changes the version's deployments wait for each other, always before any row of them."""
    Version.objects.select_for_update(no_key=True).get(pk=version_pk)


def _locked(version: Version, node: str) -> Deployment:
    """The version's deployment on that machine, or a new one that isn't saved; nobody else changes it meanwhile."""
    _lock(version.pk)
    found = Deployment.objects.select_related("version__model").filter(version=version, node=node).first()
    return found or Deployment(version=version, node=node, wanted=False)


def _require_loadable(version: Version) -> None:
    if version.model.kind == Kind.ADAPTER:
        raise LoadRefused(f"{version} is an adapter: load the version that it was made for, with it.")
    if version.state != VersionState.READY:
        raise LoadRefused(f"{version} is {version.get_state_display().lower()}; only a ready version is loaded.")


def _require_room(deployment: Deployment) -> None:
    if deployment.state not in HELD:  # what is held already counts as used memory, and its node knows better
        require_fit(deployment)


def _set_adapters(deployment: Deployment, adapters: Sequence[Version] | None) -> None:
    """Raises SpecError for what is not an adapter of this version."""
    if adapters is None:
        return
    for adapter in adapters:
        if adapter.model.kind != Kind.ADAPTER or adapter.parent_id != deployment.version_id:
            raise SpecError("adapters", f"{adapter} is not an adapter of {deployment.version}")
        if adapter.state != VersionState.READY:
            raise SpecError("adapters", f"{adapter} is {adapter.get_state_display().lower()}")
    deployment.adapters.set(adapters)


def _settings_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {'default' if value in (None, '') else value}" for name, value in settings.items())
