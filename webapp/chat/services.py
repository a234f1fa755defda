"""Writes of the chat app: conversations, and the messages in them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from registry.loads import version_loads
from webapp.chat import events
from webapp.chat.errors import ChatRefused
from webapp.chat.models import Conversation, Message, MessageRole
from webapp.chat.selectors import being_written, chat_versions_for, path_to, usable_version
from webapp.chat.titles import title_from
from webapp.serving.services import generation_create, generation_stop

if TYPE_CHECKING:
    from registry.models import Version

MAX_TEXT = 100_000  # characters of one message


@dataclass(frozen=True)
class Exchange:
    """What was written: the user's message (none when a reply was only drawn again) and the reply to come."""

    conversation: Conversation
    user_message: Message | None
    reply: Message


def conversation_create(*, owner: User, version: "Version | None" = None, alias: str = "") -> Conversation:
    """Start a conversation, with the version that is loaded (else the first one) where none is named.

    alias: of the version's model; the replies follow it from version to version. Replies are drawn as the version's own
    generation configuration says, where it says so.
    """
    version = version or default_version(owner=owner)
    sampling = version.sampling if version else {}
    return Conversation.objects.create(owner=owner, version=version, alias=alias, **sampling)


def default_version(*, owner: User) -> "Version | None":
    """Return the chat version to begin with: one that is loaded before one that isn't; None when there are none."""
    versions = chat_versions_for(viewer=owner)
    loads = version_loads(versions)
    loaded = [version for version in versions if loads[version.pk].state == "loaded"]
    return next(iter(loaded + versions), None)


def conversation_rename(*, conversation: Conversation, title: str) -> Conversation:
    conversation.title = title
    conversation.save(update_fields=["title"])
    events.conversation_changed(conversation)
    return conversation


@transaction.atomic
def conversation_delete(*, conversation: Conversation, by: User) -> Conversation:
    """Put the conversation away, so that it can be restored, and stop what is still being written in it."""
    conversation.deleted_at = Now()
    conversation.save(update_fields=["deleted_at"])
    conversation.refresh_from_db(fields=["deleted_at"])
    for message in being_written(conversation.messages.select_related("generation")):
        if message.generation is not None:
            generation_stop(generation=message.generation, by=by)
    events.conversation_changed(conversation)
    return conversation


def conversation_restore(*, conversation: Conversation) -> Conversation:
    conversation.deleted_at = None
    conversation.save(update_fields=["deleted_at"])
    events.conversation_changed(conversation)
    return conversation


def conversation_configure(*, conversation: Conversation, settings: dict[str, Any]) -> Conversation:
    """Change the version, system prompt or sampling of the replies to come; `settings` are checked by SettingsForm."""
    for name, value in settings.items():
        setattr(conversation, name, value)
    conversation.save(update_fields=list(settings))
    return conversation


@transaction.atomic
def message_send(*, conversation: Conversation, parent: Message | None, text: str, by: User) -> Exchange:
    """Add the user's message under `parent` and queue its reply; all or nothing.

    Raises ChatRefused for a text or parent that won't do, GenerationRefused when the prompt can't be run.
    """
    _check_text(text)
    conversation = _locked(conversation)
    _check_parent(conversation, parent)
    _check_idle(conversation.messages.filter(parent__parent=parent, parent__role=MessageRole.USER))
    message = Message.objects.create(conversation=conversation, parent=parent, role=MessageRole.USER, content=text)
    reply = _reply(conversation, message, by)
    if not conversation.title:
        conversation.title = title_from(text)
        events.conversation_changed(conversation)
    conversation.updated_at = Now()
    conversation.save(update_fields=["title", "updated_at", "version"])
    return Exchange(conversation, message, reply)


@transaction.atomic
def message_regenerate(*, message: Message, by: User) -> Exchange:
    """Queue another reply beside an assistant's message, with a new seed unless the conversation pins one.

    Raises ChatRefused when it isn't a reply or one is still being written, GenerationRefused as message_send does.
    """
    if message.role != MessageRole.ASSISTANT or message.parent is None:
        raise ChatRefused("Only a reply can be generated again.", field="message")
    conversation = _locked(message.conversation)
    _check_idle(conversation.messages.filter(parent=message.parent))
    reply = _reply(conversation, message.parent, by)
    conversation.updated_at = Now()
    conversation.save(update_fields=["updated_at", "version"])
    return Exchange(conversation, None, reply)


def _locked(conversation: Conversation) -> Conversation:
    """Read the conversation again under a lock, so that of two sends at once the second sees the first's reply."""
    rows = Conversation.objects.select_for_update(of=("self",)).select_related("version__model", "owner")
    return rows.get(pk=conversation.pk, deleted_at=None)


def _check_text(text: str) -> None:
    if not text.strip():
        raise ChatRefused("Write something first.", field="text")
    if len(text) > MAX_TEXT:
        raise ChatRefused(f"A message has at most {MAX_TEXT:,} characters; this one has {len(text):,}.", field="text")
    if "\0" in text:
        raise ChatRefused("The message has a null character in it, which can't be stored.", field="text")


def _check_parent(conversation: Conversation, parent: Message | None) -> None:
    if parent is None:
        return
    if parent.conversation_id != conversation.pk:
        raise Message.DoesNotExist
    if parent.role != MessageRole.ASSISTANT or parent.generation is None:
        raise ChatRefused("A message can only follow a reply.", field="parent")
    if not parent.generation.ended:
        raise ChatRefused("The reply above is still being written; stop it or wait.", field="parent")


def _check_idle(replies: QuerySet[Message]) -> None:
    """Refuse while any of these replies is being written: a second send or regenerate of the same turn."""
    if being_written(replies).exists():
        raise ChatRefused("A reply is still being written here; stop it or wait.")


def _reply(conversation: Conversation, asked: Message, by: User) -> Message:
    """Queue a generation for the path that ends with `asked`, and give it its message."""
    conversation.version = _version(conversation, by)
    if conversation.version is None:
        raise ChatRefused("There is no model to answer yet; an administrator has to add one.", field="version")
    generation = generation_create(owner=by, version=conversation.version, messages=_prompt(conversation, asked),
                                   sampling=_sampling(conversation))
    return Message.objects.create(conversation=conversation, parent=asked, role=MessageRole.ASSISTANT,
                                  generation=generation)


def _version(conversation: Conversation, by: User) -> "Version | None":
    """Return the version that answers: where the conversation's alias points now, or the one that was chosen.

    Raises ChatRefused where it is archived, deleted, restricted, or the alias was removed.
    """
    if conversation.version is None:
        return default_version(owner=by)
    try:
        return usable_version(viewer=by, name=conversation.model_name)
    except ObjectDoesNotExist:
        raise ChatRefused(f"{conversation.model_name} can't be used any more; choose another model.",
                          field="version") from None


def _prompt(conversation: Conversation, leaf: Message) -> list[dict[str, str]]:
    system = [{"role": "system", "content": conversation.system_prompt}] if conversation.system_prompt.strip() else []
    return system + [{"role": message.role, "content": message.text} for message in path_to(leaf=leaf)]


def _sampling(conversation: Conversation) -> dict[str, Any]:
    sampling: dict[str, Any] = {"temperature": conversation.temperature, "top_p": conversation.top_p,
                                "top_k": conversation.top_k, "max_tokens": conversation.max_tokens}
    return sampling if conversation.seed is None else sampling | {"seed": conversation.seed}
