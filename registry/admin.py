"""Django admin over the registry's tables: everything can be read, and is changed as the pages do, through services."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat

from inference.spec import SpecError
from registry.deployment_settings import SETTINGS, apply_settings
from registry.errors import RegistryRefused
from registry.models import (
    Action,
    Alias,
    Artifact,
    AuditEntry,
    Blob,
    Deployment,
    ImportJob,
    Model,
    Node,
    Upload,
    Version,
)
from registry.services.aliases import alias_back, alias_remove
from registry.services.audit import audit_record
from registry.services.catalog import version_archive, version_delete, version_restore
from registry.services.deployments import deployment_configure, deployment_load, deployment_remove, deployment_unload
from registry.services.import_jobs import import_cancel
from registry.services.uploads import upload_cancel
from registry.services.versions import version_publish


class ReadOnly:
    """Rows that services write: the admin shows them, and has the services as actions."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def service_action(name: str, words: str, call: Callable[[Any, Any], object]) -> Callable[..., None]:
    """An admin action that calls a service for each selected row, and shows why where one is refused.

    call: gets the row and the user.
    """
    @admin.action(description=words)
    def run(modeladmin: Any, request: HttpRequest, rows: QuerySet[Any]) -> None:
        done = 0
        for row in rows:
            try:
                call(row, request.user)
                done += 1
            except (RegistryRefused, SpecError) as refusal:
                modeladmin.message_user(request, str(refusal), messages.ERROR)
        if done:
            modeladmin.message_user(request, f"{words}: {done}.", messages.SUCCESS)

    run.__name__ = name
    return run


class ArtifactInline(ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    model = Artifact
    fields = readonly_fields = ("path", "role", "size", "blob_id")
    extra = 0

    @admin.display(description="Size")
    def size(self, artifact: Artifact) -> str:
        return filesizeformat(artifact.blob.size)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("blob")


@admin.register(Model)
class ModelAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "kind", "access", "tags", "description", "created_at"]
    list_filter = ["kind", "access"]
    search_fields = ["name", "description", "tags"]
    fields = ["name", "kind", "description", "tags", "access", "groups", "created_at"]
    readonly_fields = ["name", "kind", "created_at"]
    filter_horizontal = ["groups"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # a model comes with its first import

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # its numbers would be given again

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry:
        entry = super().log_change(request, obj, message)
        words = f"in the admin: {entry.get_change_message()}"
        audit_record(by=request.user, action=Action.EDIT, subject=obj, words=words)
        return entry


@admin.register(Version)
class VersionAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["__str__", "state", "parameters", "context_length", "licence", "source", "created_at"]
    list_filter = ["state", "model__kind"]
    list_select_related = ["model"]
    search_fields = ["model__name", "source", "reason", "tags", "notes"]
    inlines = [ArtifactInline]
    actions = [
        service_action("publish", "Publish", lambda row, user: version_publish(version=row, by=user)),
        service_action("load", "Load", lambda row, user: deployment_load(version=row, by=user)),
        service_action("archive", "Archive", lambda row, user: version_archive(version=row, by=user)),
        service_action("restore", "Restore from the archive", lambda row, user: version_restore(version=row, by=user)),
        service_action("give_up", "Delete the content", lambda row, user: version_delete(version=row, by=user)),
    ]


@admin.register(Alias)
class AliasAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["__str__", "version", "previous", "moved_by", "moved_at"]
    list_select_related = ["model", "version__model", "previous__model", "moved_by"]
    search_fields = ["model__name", "name"]
    actions = [
        service_action("back", "Move back", lambda row, user: alias_back(alias=row, by=user)),
        service_action("remove", "Remove", lambda row, user: alias_remove(alias=row, by=user)),
    ]


@admin.register(Artifact)
class ArtifactAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["path", "version", "role", "blob"]
    list_filter = ["role"]
    list_select_related = ["version__model", "blob"]
    search_fields = ["path", "blob__sha256"]


@admin.register(Blob)
class BlobAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["sha256", "size", "created_at"]
    search_fields = ["sha256"]


@admin.register(Upload)
class UploadAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "owner", "state", "created_at", "touched_at"]
    list_filter = ["state"]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    actions = [service_action("cancel", "Cancel", lambda row, user: upload_cancel(upload=row, by=row.owner))]


@admin.register(ImportJob)
class ImportJobAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["__str__", "state", "phase", "version", "owner", "reason", "created_at"]
    list_filter = ["state"]
    list_select_related = ["version__model", "owner"]
    search_fields = ["name", "path", "reason"]
    actions = [service_action("cancel", "Cancel", lambda row, user: import_cancel(job=row, by=user))]


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["at", "actor", "action", "subject", "words"]
    list_filter = ["action"]
    search_fields = ["actor", "subject", "words"]


@admin.register(Node)
class NodeAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "host", "device", "memory_bytes", "free_bytes", "version", "seen_at"]
    search_fields = ["name", "host"]


class DeploymentForm(forms.ModelForm):  # type: ignore[type-arg]
    """Holds the settings to the same rules as the services do."""

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        version = values.get("version") or getattr(self.instance, "version", None)
        if version is None or self.errors:
            return values
        trial = Deployment(version=version)
        try:
            apply_settings(trial, {name: value for name, value in values.items() if name in SETTINGS})
        except SpecError as error:
            field = error.field if error.field in self.fields else "__all__"
            raise forms.ValidationError({field: error.message}) from None
        return values


@admin.register(Deployment)
class DeploymentAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Settings can be changed here as on the pages; what the node reports can't."""

    list_display = ["__str__", "wanted", "state", "mode", "held_by", "reason"]
    list_filter = ["state", "wanted"]
    list_select_related = ["version__model"]
    search_fields = ["version__model__name", "node"]
    fields = ["version", "node", "device", "mode", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
              "kv_cache_bytes", "kv_dtype", "adapters", "idle_seconds", "load_at_start", "load_on_pick", "wanted",
              "state", "reason", "phase", "progress_done", "progress_total", "plan", "facts", "held_by", "held_until",
              "used_at"]
    readonly_fields = ["wanted", "state", "reason", "phase", "progress_done", "progress_total", "plan", "facts",
                       "held_by", "held_until", "used_at"]
    autocomplete_fields = ["version"]
    filter_horizontal = ["adapters"]
    form = DeploymentForm

    def get_readonly_fields(self, request: HttpRequest, obj: Deployment | None = None) -> list[str]:
        return [*self.readonly_fields, *(["version", "node"] if obj else [])]

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, form_url: str = "",
                        extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Say why the service refuses, where a form can't know it, and change nothing."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except (RegistryRefused, SpecError) as refusal:
            messages.error(request, str(refusal))
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Deployment, form: Any, change: bool) -> None:
        """Change the settings as the pages do: under the lock, held against the room that there is, and audited."""
        values = form.cleaned_data
        settings = {name: values[name] for name in SETTINGS if name in values}
        obj.pk = deployment_configure(deployment=obj, by=request.user, settings=settings,
                                      adapters=list(values.get("adapters") or [])).pk

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """The service has set the adapters."""

    actions = [
        service_action("load", "Load", lambda row, user: deployment_load(version=row.version, node=row.node, by=user)),
        service_action("unload", "Unload", lambda row, user: deployment_unload(deployment=row, by=user)),
        service_action("force", "Unload by force",
                       lambda row, user: deployment_unload(deployment=row, by=user, force=True)),
        service_action("remove", "Remove", lambda row, user: deployment_remove(deployment=row, by=user)),
    ]
