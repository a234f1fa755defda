"""The channel-layer messages of serving: made here only, sent after commit, and hints only: a reader can miss any."""

import asyncio
import logging
import threading
from collections.abc import Iterable
from typing import Any, TypedDict

from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)
SEND_SECONDS = 2.0


class Delta(TypedDict):
    """Text of the tokens first..last of one generation. Text without a token (released at the end) has first > last."""

    generation: str
    first: int
    last: int
    text: str


class StepEvent(TypedDict):
    """What one engine step, or one change of state, brought for one user. `views`: serving.selectors.GenerationView."""

    type: str
    deltas: list[Delta]
    views: list[dict[str, Any]]


def user_group(user_id: object) -> str:
    """The channel-layer group that all of a user's sockets are in."""
    return f"user.{user_id}"


def step_event(*, deltas: list[Delta], views: list[dict[str, Any]]) -> StepEvent:
    return {"type": "generation.step", "deltas": deltas, "views": views}


_local = threading.local()


def _runner() -> asyncio.Runner:
    """This thread's event loop, kept so that the channel layer's connection is kept."""
    runner: asyncio.Runner | None = getattr(_local, "runner", None)
    if runner is None:
        runner = _local.runner = asyncio.Runner()
    return runner


def events_send(events: Iterable[tuple[object, StepEvent]]) -> bool:
    """Send each (user id, event) in order from a thread without a running loop; false when the layer can't be reached.

    Readers find by themselves what they missed, so a failure is logged and forgotten.
    """
    try:
        _runner().run(_send_all(list(events)))
    except Exception as error:
        logger.warning("events were not sent: %s", error or type(error).__name__)
        return False
    return True


async def _send_all(events: list[tuple[object, StepEvent]]) -> None:
    layer = get_channel_layer()
    async with asyncio.timeout(SEND_SECONDS):
        for user_id, event in events:
            await layer.group_send(user_group(user_id), event)


def views_send_on_commit(views: Iterable[tuple[object, dict[str, Any]]]) -> None:
    """Tell each owner the new view of a generation (pairs of user id and view) once this transaction is committed."""
    by_user: dict[object, list[dict[str, Any]]] = {}
    for user_id, view in views:
        by_user.setdefault(user_id, []).append(view)
    if by_user:
        transaction.on_commit(
            lambda: events_send((user, step_event(deltas=[], views=found)) for user, found in by_user.items()) and None)
