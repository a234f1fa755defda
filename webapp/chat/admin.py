"""The chat tables in Django's admin."""

from django.contrib import admin

from webapp.chat.models import Conversation, Message


@admin.register(Conversation)
class ConversationAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["__str__", "owner", "version", "updated_at", "deleted_at"]
    list_filter = ["version", ("deleted_at", admin.EmptyFieldListFilter)]
    list_select_related = ["owner", "version__model"]
    search_fields = ["title", "owner__username", "id"]
    raw_id_fields = ["owner", "version"]
    date_hierarchy = "updated_at"


@admin.register(Message)
class MessageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["id", "role", "conversation", "created_at"]
    list_filter = ["role"]
    list_select_related = ["conversation"]
    search_fields = ["id", "conversation__id", "conversation__owner__username"]
    raw_id_fields = ["conversation", "parent", "generation"]
    date_hierarchy = "created_at"
