"""Selectors for pages over the registry: models and versions as lists show them, each in a fixed number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.contrib.auth.models import Group
from django.core.paginator import Page, Paginator
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from registry.access import Viewer, is_administrator
from registry.models import (
    Access,
    Alias,
    Artifact,
    AuditEntry,
    Deployment,
    DeploymentState,
    ImportJob,
    Kind,
    Model,
    Node,
    Upload,
    UploadState,
    Version,
    VersionState,
)
from registry.selectors import models_for, versions_for

PAGE_ROWS = 50
HISTORY_ROWS = 50
KINDS = tuple(Kind.choices)
ACCESS = tuple(Access.choices)
STATUSES = (
    ("loaded", "Loaded"), ("loading", "Loading"), ("unloaded", "Not loaded"), ("failed", "Failed to load"),
    ("verifying", "Being verified"), ("verified", "Waiting to be published"), ("rejected", "With rejected versions"),
    ("archived", "With archived versions"),
)


@dataclass(kw_only=True)
class ModelRow:
    """A model in the catalog. newest: its newest ready version; deployments: those that are, or are to be, loaded."""

    model: Model
    version_count: int
    newest: Version | None = None
    aliases: list[Alias] = field(default_factory=list)
    deployments: list[Deployment] = field(default_factory=list)


def models_visible(*, viewer: Viewer) -> QuerySet[Model]:
    """Return the models of which the viewer may see a version; administrators see all."""
    models = models_for(viewer=viewer)
    if is_administrator(viewer):
        return models
    return models.filter(Exists(_ready_of("pk")))


def versions_visible(*, viewer: Viewer) -> QuerySet[Version]:
    """Return the versions that the viewer may look at: for administrators in every state, else those they may use."""
    rows = Version.objects.all() if is_administrator(viewer) else versions_for(viewer=viewer)
    return rows.select_related("model", "parent__model").order_by("model__name", "-number")


def _ready_of(outer: str) -> QuerySet[Version]:
    """The ready versions of the model that an outer query names; who may see that model, the outer query says."""
    return Version.objects.filter(state=VersionState.READY, model=OuterRef(outer)).order_by()


def model_visible(*, viewer: Viewer, name: str) -> Model:
    """Return a model by name. Raises Model.DoesNotExist, the same for missing and forbidden."""
    return models_visible(viewer=viewer).get(name=name)


def version_visible(*, viewer: Viewer, name: str, number: int) -> Version:
    """Return a version by its model's name and its number. Raises Version.DoesNotExist likewise."""
    return versions_visible(viewer=viewer).get(model__name=name, number=number)


def models_page(*, viewer: Viewer, search: str = "", kind: str = "", status: str = "",
                page: int | str = 1) -> tuple[Page[Model], list[ModelRow]]:
    """Return one page of the models that match, and its rows. An unknown kind or status matches nothing."""
    models = models_visible(viewer=viewer).order_by("name")
    for word in search.split()[:8]:
        models = models.filter(Q(name__icontains=word) | Q(description__icontains=word) | Q(tags__icontains=word))
    if kind:
        models = models.filter(kind=kind)
    if status:
        models = _with_status(models, viewer, status)
    found = Paginator(models, PAGE_ROWS).get_page(page)
    return found, _rows(list(found), viewer)


def _with_status(models: QuerySet[Model], viewer: Viewer, status: str) -> QuerySet[Model]:
    """Keep the models with a version in this state, or with a deployment in it: sets of keys, read once."""
    if status in VersionState.values:
        versions = versions_visible(viewer=viewer).order_by().filter(state=status)
        return models.filter(pk__in=versions.values("model"))
    deployments = Deployment.objects.order_by()
    if status == "unloaded":
        active = (DeploymentState.LOADED, DeploymentState.LOADING, DeploymentState.UNLOADING)
        held = deployments.filter(Q(state__in=active) | Q(wanted=True))
        return models.exclude(pk__in=held.values("version__model"))
    if status == "loading":
        found = deployments.filter(Q(state=DeploymentState.LOADING) | Q(state=DeploymentState.UNLOADED, wanted=True))
    else:
        found = deployments.filter(state=status)  # none for a word that is no state
    return models.filter(pk__in=found.values("version__model"))


def _rows(models: list[Model], viewer: Viewer) -> list[ModelRow]:
    """Read what the rows show of these models: three queries, however many there are."""
    pks = [model.pk for model in models]
    visible = versions_visible(viewer=viewer).filter(model__in=pks).exclude(state=VersionState.DELETED).order_by()
    counts = dict(visible.values_list("model").annotate(Count("pk")))
    newest = Subquery(_ready_of("pk").order_by("-number").values("pk")[:1])
    chosen = Version.objects.filter(pk__in=Model.objects.filter(pk__in=pks).annotate(newest=newest).values("newest"))
    rows = {model.pk: ModelRow(model=model, version_count=counts.get(model.pk, 0)) for model in models}
    for version in chosen.select_related("model").defer("facts", "checks"):
        rows[version.model_id].newest = version
    for alias in Alias.objects.filter(model__in=pks).select_related("version"):
        rows[alias.model_id].aliases.append(alias)
    for deployment in deployments_active().filter(version__model__in=pks):
        rows[deployment.version.model_id].deployments.append(deployment)
    return list(rows.values())


def deployments_active() -> QuerySet[Deployment]:
    """Return what is loaded, to be loaded, being unloaded or failed, with `live`: whether its node still holds it."""
    rows = Deployment.objects.annotate(live=Q(held_until__gte=Now())).select_related("version__model")
    rows = rows.exclude(state=DeploymentState.UNLOADED, wanted=False)
    return rows.defer("version__facts", "version__checks").order_by("version__model__name", "version__number", "node")


def model_versions(*, viewer: Viewer, model: Model) -> list[Version]:
    """Return a model's versions that the viewer may look at, newest first."""
    return list(versions_visible(viewer=viewer).filter(model=model).defer("facts", "checks")
                .prefetch_related("aliases").order_by("-number"))


def model_aliases(*, model: Model) -> list[Alias]:
    return list(model.aliases.select_related("version", "previous", "moved_by").order_by("name"))


def alias_visible(*, viewer: Viewer, name: str, alias: str) -> Alias:
    """Return an alias by its model's name and its own. Raises Alias.DoesNotExist, for forbidden ones too."""
    rows = Alias.objects.filter(model__in=models_visible(viewer=viewer).order_by())
    return rows.select_related("model", "version__model", "previous__model").get(model__name=name, name=alias)


def version_artifacts(*, version: Version) -> list[Artifact]:
    """Return a version's files by path, with their blobs."""
    return list(version.artifacts.select_related("blob").order_by("path"))


def version_deployments(*, version: Version) -> list[Deployment]:
    """Return all deployments of a version, also unloaded ones, with `live`."""
    rows = Deployment.objects.annotate(live=Q(held_until__gte=Now())).filter(version=version)
    return list(rows.select_related("version__model").prefetch_related("adapters__model").order_by("node"))


def version_adapters(*, version: Version) -> QuerySet[Version]:
    """Return the ready LoRA adapters that were made for a version."""
    rows = Version.objects.filter(parent=version, model__kind=Kind.ADAPTER, state=VersionState.READY)
    return rows.select_related("model").order_by("model__name", "-number")


def deployment_visible(*, viewer: Viewer, pk: int) -> Deployment:
    """Return a deployment of a version that the viewer may look at. Raises Deployment.DoesNotExist."""
    versions = versions_visible(viewer=viewer).order_by().values("pk")
    return Deployment.objects.select_related("version__model").get(pk=pk, version__in=versions)


def history(*, model: Model | None = None, version: Version | None = None) -> list[AuditEntry]:
    """Return the newest audit lines of a model with all its versions, or of one version."""
    rows = AuditEntry.objects.all()
    rows = rows.filter(version=version) if version is not None else rows.filter(model=model)
    return list(rows[:HISTORY_ROWS])


def all_groups() -> list[Group]:
    """Return the groups that a model may be restricted to."""
    return list(Group.objects.order_by("name"))


def nodes() -> list[Node]:
    """Return every machine that has reported itself, by name."""
    return list(Node.objects.order_by("name"))




def newest_versions(*, viewer: Viewer) -> list[Version]:
    """Return the newest usable version of each model, models by name."""
    newest = Subquery(_ready_of("model").order_by("-number").values("pk")[:1])
    rows = versions_for(viewer=viewer).filter(pk=newest)
    return list(rows.defer("facts", "checks").order_by("model__name"))


def versions_named(*, viewer: Viewer, names: Sequence[str]) -> list[Version]:
    """Return those usable versions that are named like `smollm2:3`, in the order of names."""
    wanted = Q(pk__in=[])
    for name in names:
        model, _, number = name.rpartition(":")
        if number.isascii() and number.isdigit() and len(number) < 10:
            wanted |= Q(model__name=model, number=int(number))
    found = {str(version): version for version in versions_for(viewer=viewer).filter(wanted).defer("facts", "checks")}
    return [found[name] for name in dict.fromkeys(names) if name in found]


def imports_recent() -> list[ImportJob]:
    """Return the newest imports, for administrators."""
    return list(ImportJob.objects.select_related("version__model").defer("checks")[:8])


def uploads_open(*, viewer: Viewer) -> list[Upload]:
    """Return the viewer's own uploads that still wait for chunks."""
    return list(Upload.objects.filter(owner_id=viewer.pk, state=UploadState.RECEIVING)[:20])
