"""Server-sent events as OpenAI's clients read them."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from webapp.api.errors import ApiError, failed

logger = logging.getLogger(__name__)
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


def event(data: Any) -> bytes:
    """One event with that JSON."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


async def to_the_end(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Pass events on; whatever goes wrong on the way is told as an event, and [DONE] comes last."""
    try:
        async with aclosing(events):
            async for one in events:
                yield one
    except ApiError as error:
        yield event(error.body)
    except Exception:
        logger.exception("a stream failed")
        yield event(failed("Something went wrong here; the site's log says what.", code="internal_error").body)
    yield DONE
