"""Generations in the admin: read-only, since only workers may write them."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from webapp.serving.models import Generation


@admin.register(Generation)
class GenerationAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["id", "owner", "version", "state", "phase", "attempt", "output_count", "created_at"]
    list_filter = ["state", "version", "mode"]
    search_fields = ["id", "owner__username"]
    list_select_related = ["owner", "version__model"]
    date_hierarchy = "created_at"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
