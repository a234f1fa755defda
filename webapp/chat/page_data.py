"""What the browser code of the chat page gets, as plain values for JSON."""

from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse

from registry.loads import version_loads
from webapp.chat.models import Conversation, Message
from webapp.chat.selectors import chat_aliases_for, chat_versions_for, messages_of
from webapp.serving.selectors import generation_view


def page_data(*, viewer: User, conversation: Conversation | None) -> dict[str, Any]:
    """Return the whole of the page's data; without a conversation, that of an empty page."""
    return {
        "conversation": conversation and conversation_data(conversation),
        "messages": messages_data(conversation) if conversation else [],
        "models": models_data(viewer=viewer),
        "user": {"username": viewer.get_username(), "is_staff": viewer.is_staff},
        "urls": {"home": reverse("chat:home"), "create": reverse("chat:create"), "models": reverse("chat:models"),
                 "login": reverse("accounts:login"), "logout": reverse("accounts:logout"), "socket": "/ws/chat/"},
    }


def conversation_data(conversation: Conversation) -> dict[str, Any]:
    return {"id": str(conversation.pk), "title": conversation.title, "settings": settings_data(conversation)}


def settings_data(conversation: Conversation) -> dict[str, Any]:
    return {
        "version": conversation.version_id,
        "alias": conversation.alias,
        "model": conversation.model_name,
        "system_prompt": conversation.system_prompt,
        "temperature": conversation.temperature,
        "top_p": conversation.top_p,
        "top_k": conversation.top_k,
        "max_tokens": conversation.max_tokens,
        "seed": conversation.seed,
    }


def messages_data(conversation: Conversation) -> list[dict[str, Any]]:
    """Return every message of the tree, oldest first."""
    return [message_data(message) for message in messages_of(conversation=conversation)]


def message_data(message: Message) -> dict[str, Any]:
    """Return one message. `text` reaches to the generation's `index`, so that a socket can go on from there."""
    generation = message.generation
    view = generation_view(generation).to_dict() | {"index": generation.output_count} if generation else None
    return {
        "id": str(message.pk),
        "parent": str(message.parent_id) if message.parent_id else None,
        "role": message.role,
        "text": message.text,
        "created_at": message.created_at.isoformat(),
        "generation": view,
    }


def models_data(*, viewer: User) -> list[dict[str, Any]]:
    """Return the chat versions and aliases that the viewer may pick, and how far each is from answering."""
    versions = chat_versions_for(viewer=viewer)
    loads = version_loads(versions)
    choices = [(version, "", str(version)) for version in versions]
    choices += [(alias.version, alias.name, str(alias)) for alias in chat_aliases_for(viewer=viewer)]
    return [{
        "version": version.pk,
        "alias": alias,
        "name": name,
        "context_length": loads[version.pk].limit,
        "state": loads[version.pk].state,
        "reason": loads[version.pk].reason,
        "load": loads[version.pk].progress,
    } for version, alias, name in choices]
