"""What the pump tells the process that waits for a program's request: messages on that process's own Redis channel.

They are hints as the chat page's are: one can be lost, and the reader then finds the tokens in stream and row.
"""

import logging
from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec
import redis

from webapp.serving.models import Generation
from webapp.serving.streams import StreamEntry, stream_client

logger = logging.getLogger(__name__)
CHANNEL_START = "parley.replies."


class ReplyEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Why a generation ended, as inference.protocol.FinishReason says it, and what it used."""

    reason: str
    error: str = ""
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class ReplyPart(msgspec.Struct, frozen=True, kw_only=True):
    """New tokens of one generation, text that came without a token, and its end."""

    generation: str
    entries: Sequence[StreamEntry] = ()
    tail: str = ""
    end: ReplyEnd | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[ReplyPart])


def new_channel() -> str:
    """A channel name that no other process has."""
    return CHANNEL_START + uuid4().hex


def reply_end(row: Generation, *, reason: str, error: str) -> ReplyEnd:
    return ReplyEnd(reason=reason, error=error, prompt_tokens=row.prompt_tokens, cached_tokens=row.cached_tokens,
                    output_tokens=row.output_count)


def replies_publish(parts: Mapping[str, Sequence[ReplyPart]]) -> None:
    """Publish each channel's parts as one message. What can't be sent is logged and forgotten."""
    if not parts:
        return
    try:
        with stream_client().pipeline(transaction=False) as pipe:
            for channel, found in parts.items():
                pipe.publish(channel, _encoder.encode(found))
            pipe.execute()
    except redis.RedisError as error:
        logger.warning("replies were not announced: %s", error)


def parse_parts(message: str | bytes) -> list[ReplyPart]:
    """Read a message of replies_publish. Raises msgspec.ValidationError."""
    return _decoder.decode(message)
