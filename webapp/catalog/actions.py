"""What administrators do to models, versions, aliases and deployments: each calls one service and goes back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from registry import overview
from registry.errors import LoadRefused, RegistryRefused
from registry.services import aliases, catalog, deployments, versions
from webapp.catalog.access import SignedIn, administrators
from webapp.catalog.forms import AliasForm, ModelForm, SettingsForm, VersionForm, first_error
from webapp.catalog.views import version_page
from webapp.serving.dispatch import node_wake

if TYPE_CHECKING:
    from registry.models import Deployment


def acted(request: SignedIn, act: Callable[[], Any], *, done: str, back: str) -> HttpResponse:
    """Run a service and go to `back`, with a word of what was done, or of why it was not."""
    try:
        act()
    except RegistryRefused as refusal:
        messages.error(request, refusal.reason)
    else:
        messages.success(request, done)
    return HttpResponseRedirect(back)


def model_url(name: str, anchor: str = "") -> str:
    return reverse("catalog:model", args=[name]) + anchor


def version_url(name: str, number: int, anchor: str = "") -> str:
    return reverse("catalog:version", args=[name, number]) + anchor


VERSION_ACTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "publish": (versions.version_publish, "is published and can be used."),
    "archive": (catalog.version_archive, "is archived."),
    "restore": (catalog.version_restore, "is ready again."),
    "delete": (catalog.version_delete, "is deleted."),
}


@administrators
@require_POST
def version_act(request: SignedIn, name: str, number: int, action: str) -> HttpResponse:
    """Publish, archive, restore or delete a version."""
    if action not in VERSION_ACTIONS:
        raise Http404("There is no such action.")
    version = overview.version_visible(viewer=request.user, name=name, number=number)
    service, words = VERSION_ACTIONS[action]
    return acted(request, lambda: service(version=version, by=request.user), done=f"{version} {words}",
                 back=version_url(name, number))


@administrators
@require_POST
def version_edit(request: SignedIn, name: str, number: int) -> HttpResponse:
    version = overview.version_visible(viewer=request.user, name=name, number=number)
    form = VersionForm(request.POST)
    if not form.is_valid():
        messages.error(request, first_error(form))
        return HttpResponseRedirect(version_url(name, number))
    fields = form.cleaned_data
    return acted(request, lambda: catalog.version_edit(
        version=version, by=request.user, notes=fields["notes"], tags=[fields["tags"]], licence=fields["licence"]),
        done="Saved.", back=version_url(name, number))


@administrators
@require_POST
def model_edit(request: SignedIn, name: str) -> HttpResponse:
    """Change a model's description, tags and who may use it."""
    model = overview.model_visible(viewer=request.user, name=name)
    form = ModelForm(request.POST)
    if not form.is_valid():
        messages.error(request, first_error(form))
        return HttpResponseRedirect(model_url(name))
    fields = form.cleaned_data

    def save() -> None:
        catalog.model_edit(model=model, by=request.user, description=fields["description"], tags=[fields["tags"]])
        if fields["access"] != model.access or set(fields["groups"]) != set(model.groups.all()):
            catalog.model_access_set(model=model, by=request.user, access=fields["access"],
                                     groups=list(fields["groups"]))

    return acted(request, save, done="Saved.", back=model_url(name))


@administrators
@require_POST
def alias_set(request: SignedIn, name: str) -> HttpResponse:
    """Make an alias or move it: `alias` and `version` from the form, or both in one button as `move=production:3`."""
    model = overview.model_visible(viewer=request.user, name=name)
    form = AliasForm(AliasForm.data_of(request.POST))
    if not form.is_valid():
        messages.error(request, first_error(form))
        return HttpResponseRedirect(model_url(name, "#aliases"))
    alias = form.cleaned_data["alias"]
    version = overview.version_visible(viewer=request.user, name=name, number=form.cleaned_data["version"])
    return acted(request, lambda: aliases.alias_set(model=model, name=alias, version=version, by=request.user),
                 done=f"{name}@{alias} points at {version}.", back=model_url(name, "#aliases"))


@administrators
@require_POST
def alias_back(request: SignedIn, name: str, alias: str) -> HttpResponse:
    found = overview.alias_visible(viewer=request.user, name=name, alias=alias)
    return acted(request, lambda: aliases.alias_back(alias=found, by=request.user),
                 done=f"{found} points at {found.previous} again.", back=model_url(name, "#aliases"))


@administrators
@require_POST
def alias_remove(request: SignedIn, name: str, alias: str) -> HttpResponse:
    found = overview.alias_visible(viewer=request.user, name=name, alias=alias)
    return acted(request, lambda: aliases.alias_remove(alias=found, by=request.user), done=f"{found} is removed.",
                 back=model_url(name, "#aliases"))


@administrators
@require_POST
def load(request: SignedIn, name: str, number: int) -> HttpResponse:
    """Ask for a version to be loaded with the settings of the plan's form; a refusal comes with the plan beside it."""
    version = overview.version_visible(viewer=request.user, name=name, number=number)
    form = SettingsForm(request.POST, adapters=overview.version_adapters(version=version))
    if not form.is_valid():
        return _load_refused(request, name, number, first_error(form))
    node = "" if "anywhere" in request.POST else form.cleaned_data["place"]
    try:
        deployments.deployment_load(version=version, by=request.user, node=node, settings=form.settings(policies=True),
                                    adapters=list(form.cleaned_data["adapters"]))
    except LoadRefused as refusal:
        return _load_refused(request, name, number, refusal.reason, lines=refusal.lines)
    except ValueError as error:  # a setting that the engine doesn't have; the message names it
        return _load_refused(request, name, number, str(error))
    transaction.on_commit(node_wake)
    return HttpResponseRedirect(version_url(name, number, "#deployments"))


def _load_refused(request: SignedIn, name: str, number: int, reason: str, **context: Any) -> HttpResponse:
    return version_page(request, name, number, status=409, data=request.POST, load_refused=reason, **context)


@administrators
@require_POST
def load_again(request: SignedIn, pk: int) -> HttpResponse:
    """Ask again for what failed or was unloaded, with the settings that it has."""
    row = overview.deployment_visible(viewer=request.user, pk=pk)

    def again() -> None:
        deployments.deployment_load(version=row.version, by=request.user, node=row.node)
        transaction.on_commit(node_wake)

    return acted(request, again, done=f"{row.version} is to be loaded.", back=_loading_url(row))


@administrators
@require_POST
def unload(request: SignedIn, pk: int) -> HttpResponse:
    """Ask for a deployment to be unloaded; `force` stops the replies that run."""
    row = overview.deployment_visible(viewer=request.user, pk=pk)

    def end() -> None:
        deployments.deployment_unload(deployment=row, by=request.user, force="force" in request.POST)
        transaction.on_commit(node_wake)

    return acted(request, end, done=f"{row.version} is to be unloaded.", back=_loading_url(row))


def _loading_url(row: "Deployment") -> str:
    return version_url(row.version.model.name, row.version.number, "#deployments")
