"""Server-sent events as OpenAI's clients read them."""

from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


def event(data: Any) -> bytes:
    """One event with that JSON."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
