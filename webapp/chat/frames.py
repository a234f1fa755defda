"""The frames of the chat socket, both ways: typed, and checked before anything else looks at them."""

import re
from typing import Annotated, Any
from uuid import UUID

import msgspec

from webapp.serving.events import Delta

MAX_FRAME_BYTES = 512 * 1024
MAX_INDEX = 2**31 - 1

Ref = Annotated[str, msgspec.Meta(max_length=64)]
Index = Annotated[int, msgspec.Meta(ge=0, le=MAX_INDEX)]


class Incoming(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """What every frame from a browser may carry: `ref` comes back in the answer or the error."""

    ref: Ref | None = None


class MessageSend(Incoming, tag="message.send", frozen=True, kw_only=True):
    """Add a message under `parent` (null at the start of a conversation) and have it answered."""

    conversation: UUID
    parent: UUID | None
    text: str


class MessageRegenerate(Incoming, tag="message.regenerate", frozen=True, kw_only=True):
    """Draw another reply beside an assistant's message."""

    message: UUID


class GenerationStop(Incoming, tag="generation.stop", frozen=True, kw_only=True):
    generation: UUID


class GenerationWatch(Incoming, tag="generation.watch", frozen=True, kw_only=True):
    """Follow a generation from the token after index `after`; 0 asks for everything."""

    generation: UUID
    after: Index = 0


class Ping(Incoming, tag="ping", frozen=True, kw_only=True):
    pass


BrowserFrame = MessageSend | MessageRegenerate | GenerationStop | GenerationWatch | Ping


class Outgoing(msgspec.Struct, tag_field="type", frozen=True, kw_only=True, omit_defaults=True):
    ref: str | None = None


class Pong(Outgoing, tag="pong", frozen=True, kw_only=True):
    pass


class MessageCreated(Outgoing, tag="message.created", frozen=True, kw_only=True):
    """A new exchange; messages as `page_data.message_data` shows them. Without a user's message after regenerate."""

    conversation: str
    user_message: dict[str, Any] | None
    reply: dict[str, Any]


class GenerationDeltas(Outgoing, tag="generation.deltas", frozen=True, kw_only=True):
    """Text of tokens first..last of each generation, counted from 1; each follows on what was sent before."""

    deltas: list[Delta]


class GenerationSnapshot(Outgoing, tag="generation.snapshot", frozen=True, kw_only=True):
    """The whole text up to token `index`: it replaces what is shown."""

    generation: str
    index: int
    text: str
    view: dict[str, Any]


class GenerationView(Outgoing, tag="generation.view", frozen=True, kw_only=True):
    view: dict[str, Any]


class ConversationChanged(Outgoing, tag="conversation.changed", frozen=True, kw_only=True):
    conversation: dict[str, Any]


class ErrorFrame(Outgoing, tag="error", frozen=True, kw_only=True, omit_defaults=False):
    """Why a frame was not carried out. code: bad_frame, not_found, too_long, refused or internal."""

    code: str
    message: str
    field: str = ""


class BadFrame(ValueError):
    """A frame that can't be read. `field` and `ref` are empty where the frame didn't get that far."""

    def __init__(self, message: str, *, field: str = "", ref: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.ref = ref


class _Lead(msgspec.Struct):
    ref: Ref | None = None


_decoder: msgspec.json.Decoder[BrowserFrame] = msgspec.json.Decoder(BrowserFrame)
_lead_decoder = msgspec.json.Decoder(_Lead)
_encoder = msgspec.json.Encoder()
_FIELD = re.compile(r"(?:at `\$\.(\w+)|field `(\w+)`)")


def parse(text: str | None) -> BrowserFrame:
    """Return the typed frame. `text` is None for a binary frame. Raises BadFrame, in words and with the field."""
    if text is None:
        raise BadFrame("Frames are JSON text, not binary.")
    if len(text) > MAX_FRAME_BYTES:
        raise BadFrame(f"A frame has at most {MAX_FRAME_BYTES} bytes.")
    try:
        body = text.encode()
        if len(body) > MAX_FRAME_BYTES:
            raise BadFrame(f"A frame has at most {MAX_FRAME_BYTES} bytes.")
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        raise BadFrame(f"{error}.", field=next(filter(None, found.groups())) if found else "",
                       ref=_ref_of(text)) from error
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise BadFrame("The frame is not valid JSON.") from error


def _ref_of(text: str) -> str | None:
    """Return the `ref` of a frame that is otherwise wrong, so that the browser knows which one it was."""
    try:
        return _lead_decoder.decode(text).ref
    except (msgspec.MsgspecError, RecursionError):
        return None


def encode(frame: Outgoing) -> str:
    """Return the frame as JSON text."""
    return _encoder.encode(frame).decode()
