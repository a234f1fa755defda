"""Reads of the chat app. `conversation_for` and `message_for` are the only doors to one person's private rows."""

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.db.models import QuerySet

from registry.selectors import aliases_for, version_resolve, versions_for
from webapp.chat.models import Conversation, Message
from webapp.serving.models import Generation, GenerationState

if TYPE_CHECKING:
    from registry.models import Alias, Version

TOKENS = ("prompt_ids", "output_ids")  # long, and never shown here
HEAVY = tuple(f"generation__{name}" for name in TOKENS)


def conversation_for(*, viewer: User, pk: uuid.UUID, deleted: bool = False) -> Conversation:
    """Return the viewer's conversation. A deleted one is found only when asked for with `deleted`.

    Raises Conversation.DoesNotExist, alike for missing and foreign ones.
    """
    rows = Conversation.objects.filter(owner=viewer).select_related("version__model")
    return rows.get(pk=pk) if deleted else rows.get(pk=pk, deleted_at=None)


def message_for(*, viewer: User, pk: uuid.UUID) -> Message:
    """Return a message of the viewer's conversations. Raises Message.DoesNotExist, alike for missing and foreign."""
    return _messages_of(viewer).select_related("conversation", "parent", "generation").defer(*HEAVY).get(pk=pk)


def generation_for(*, viewer: User, pk: uuid.UUID) -> Generation:
    """Return the generation of a reply, through the same door. Raises Generation.DoesNotExist."""
    return _generations_of(viewer).get(pk=pk)


def generations_for(*, viewer: User, pks: Iterable[uuid.UUID]) -> list[Generation]:
    """Return those of the generations that the viewer may see, in one query."""
    return list(_generations_of(viewer).filter(pk__in=list(pks)))


def _generations_of(viewer: User) -> QuerySet[Generation]:
    seen = _messages_of(viewer).exclude(generation=None).order_by()
    return Generation.objects.filter(pk__in=seen.values("generation")).select_related("version__model").defer(*TOKENS)


def _messages_of(viewer: User) -> QuerySet[Message]:
    return Message.objects.filter(conversation__owner=viewer, conversation__deleted_at=None)


def conversations_for(*, viewer: User) -> QuerySet[Conversation]:
    """Return the viewer's conversations for the list, last used first."""
    rows = Conversation.objects.filter(owner=viewer, deleted_at=None)
    return rows.only("id", "title", "updated_at").order_by("-updated_at", "id")


def messages_of(*, conversation: Conversation) -> list[Message]:
    """Return the whole tree of a conversation, oldest first, with each reply's generation."""
    rows = Message.objects.filter(conversation=conversation)
    return list(rows.select_related("generation__version__model").defer(*HEAVY))


def being_written(replies: QuerySet[Message]) -> QuerySet[Message]:
    """Keep those of the replies whose generation hasn't ended."""
    return replies.filter(generation__state__in=(GenerationState.QUEUED, GenerationState.RUNNING))


def path_to(*, leaf: Message) -> list[Message]:
    """Return the messages from the root of the tree down to `leaf`."""
    by_pk = {message.pk: message for message in messages_of(conversation=leaf.conversation)}
    path: list[Message] = []
    step: Message | None = by_pk[leaf.pk]
    while step is not None:
        path.append(step)
        step = by_pk[step.parent_id] if step.parent_id else None
    return path[::-1]


def usable_version(*, viewer: User, name: str) -> "Version":
    """Return the chat version that `model:1` or `model@alias` names for the viewer now. Raises Version.DoesNotExist."""
    return version_resolve(reference=name, user=viewer, kind="chat").version


def chat_aliases_for(*, viewer: User) -> "list[Alias]":
    """Return the aliases of chat models that the viewer may pick."""
    return list(aliases_for(viewer=viewer, kind="chat"))


def chat_versions_for(*, viewer: User) -> "list[Version]":
    """Return the chat versions that the viewer may pick."""
    return list(versions_for(viewer=viewer, kind="chat").select_related("model"))
