"""What the chat app tells a person's open sockets: finished frames, in the group that serving sends its steps to."""

import asyncio
import logging
from typing import TypedDict

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from redis.exceptions import RedisError

from webapp.chat.frames import ConversationChanged, Outgoing, encode
from webapp.chat.models import Conversation
from webapp.serving.events import SEND_SECONDS, user_group

log = logging.getLogger(__name__)


class FrameEvent(TypedDict):
    """A channel-layer message: a frame for every socket of a user but `skip`, which has it already."""

    type: str  # "chat.frame"
    frame: str
    skip: str


def frame_event(frame: Outgoing, *, skip: str = "") -> FrameEvent:
    return {"type": "chat.frame", "frame": encode(frame), "skip": skip}


def conversation_changed(conversation: Conversation) -> None:
    """Tell the owner's sockets, after commit, what the conversation is called now or that it is gone.

    Only a courtesy to open pages: where Redis can't be reached, they show the change at their next load.
    """
    data = {"id": str(conversation.pk), "title": conversation.title}
    event = frame_event(ConversationChanged(
        conversation=data if conversation.deleted_at is None else data | {"deleted": True}))
    transaction.on_commit(lambda: _send(conversation.owner_id, event))


class SessionEnded(TypedDict):
    """A channel-layer message: the sockets that were opened in this session are to be closed."""

    type: str  # "session.ended"
    session: str


def session_ended(*, user_pk: int, session: str) -> None:
    """Close the sockets of a session that was signed out of; those of the person's other sessions stay."""
    _send(user_pk, {"type": "session.ended", "session": session})


def _send(user_pk: int, event: FrameEvent | SessionEnded) -> None:
    """Send from a view or a socket's database thread, on the server's own event loop.

    A loop of this thread's own would be left behind, with its connection: each request has a thread to itself.
    """
    try:
        async_to_sync(_group_send)(user_group(user_pk), event)
    except (RedisError, OSError) as error:  # TimeoutError is an OSError
        log.warning("open pages were not told of a change: %s", error or type(error).__name__)


async def _group_send(group: str, event: FrameEvent | SessionEnded) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await get_channel_layer().group_send(group, event)
