"""Keys, limits and usage in the administration: limits are set there, keys can be revoked, the rest is to be read."""

from django.contrib import admin
from django.http import HttpRequest

from webapp.accounts.models import ApiKey, Quota, Usage


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["start", "name", "owner", "scopes", "created_at", "last_used_at", "revoked_at"]
    readonly_fields = ["owner", "name", "start", "scopes", "created_at", "last_used_at"]
    fields = [*readonly_fields, "revoked_at"]
    search_fields = ["name", "owner__username"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(Quota)
class QuotaAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["__str__", "requests_per_minute", "tokens_per_minute"]
    autocomplete_fields = ["user", "group"]


@admin.register(Usage)
class UsageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["created_at", "user", "endpoint", "model", "prompt_tokens", "cached_tokens", "output_tokens"]
    list_filter = ["endpoint", "model"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Usage | None = None) -> bool:
        return False
