"""Django admin over the registry's tables; what a version is made of can be read there, never changed."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat

from registry.models import Artifact, Blob, Deployment, Model, Node, Version


class ReadOnly:
    """Rows that services write: the admin shows them."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


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
    list_display = ["name", "kind", "description", "created_at"]
    list_filter = ["kind"]
    search_fields = ["name", "description"]
    fields = ["name", "kind", "description", "created_at"]
    readonly_fields = ["name", "kind", "created_at"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # a model comes with its first import


@admin.register(Version)
class VersionAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["__str__", "state", "parameters", "context_length", "source", "created_at"]
    list_filter = ["state", "model__kind"]
    list_select_related = ["model"]
    search_fields = ["model__name", "source", "reason"]
    inlines = [ArtifactInline]


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


@admin.register(Node)
class NodeAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "device", "memory_bytes", "seen_at"]


@admin.register(Deployment)
class DeploymentAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The wish can be changed here; what the node reports can't."""

    list_display = ["__str__", "wanted", "state", "mode", "held_by", "reason"]
    list_filter = ["state", "wanted"]
    list_select_related = ["version__model"]
    readonly_fields = ["state", "reason", "phase", "progress_done", "progress_total", "facts", "held_by", "held_until",
                       "created_at"]
