"""What the chat app tells a person's open sockets: finished frames, in the group that serving sends its steps to."""

from typing import TypedDict

from django.db import transaction

from webapp.chat.frames import ConversationChanged, Outgoing, encode
from webapp.chat.models import Conversation
from webapp.serving.events import events_send


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
    events_send([(user_pk, event)])  # type: ignore[list-item]  # typed for serving's own events; it sends any
