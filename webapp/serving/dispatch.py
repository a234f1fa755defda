"""Messages to the workers: run this generation, stop that one. Losing one costs time only: the row is the truth."""

import logging

import redis
from kombu.exceptions import OperationalError
from kombu.transport.redis import Channel

from webapp.config.celery import app
from webapp.serving.streams import stream_client

logger = logging.getLogger(__name__)
RUN_TASK = "serving.generation_run"
WAKE_TASK = "serving.node_wake"
STOP_POOLED = "pooled:"  # before the id of a request to embed or score, on the channel of stops
IMPORT_TASK = "serving.import_run"
IMPORT_QUEUE = "imports"
AHEAD, IN_TURN = 0, 6  # Celery's priorities on Redis: lower goes first, in steps of three
PRIORITY_SEPARATOR = Channel.sep


def model_queue(version_pk: int) -> str:
    """The Celery queue of a version; each of its model workers, on whatever machine, takes from it."""
    return f"model.{version_pk}"


def stop_channel(version_pk: int) -> str:
    """The Redis channel on which the model workers of a version hear what to stop."""
    return f"parley.stop.{version_pk}"


def generation_dispatch(*, pk: object, version_pk: int, resumed: bool = False) -> bool:
    """Put a queued generation into its version's queue; false when the broker is away (the sweeper does it later).

    resumed: it had begun before, and goes ahead of those that have not.
    """
    try:
        app.send_task(RUN_TASK, args=[str(pk)], queue=model_queue(version_pk), priority=AHEAD if resumed else IN_TURN,
                      retry=True,
                      retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0.1})
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("generation %s waits for the broker: %s", pk, error)
        return False
    return True


def queue_length(version_pk: int) -> int:
    """Messages in a version's queue, those that a worker already took left out. Raises redis.RedisError."""
    name = model_queue(version_pk)  # the broker keeps a list for each priority: its names are Celery's
    with stream_client().pipeline(transaction=False) as pipe:
        for key in (name, f"{name}{PRIORITY_SEPARATOR}{IN_TURN}"):
            pipe.llen(key)
        return sum(pipe.execute())


def node_wake() -> None:
    """Have a node look at its deployments now instead of within a second."""
    try:
        app.send_task(WAKE_TASK, queue="node", retry=False, expires=5)
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("no node was woken: %s", error)


def import_dispatch(pk: object) -> bool:
    """Have a node worker run an import, one that shares the site's storage; false when the broker is away."""
    try:
        app.send_task(IMPORT_TASK, args=[str(pk)], queue=IMPORT_QUEUE, retry=False)
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("import %s waits for the broker: %s", pk, error)
        return False
    return True


def stop_announce(*, pk: object, version_pk: int) -> None:
    """Tell the pump at once that a stop was asked for; it also finds the flag in the row within a second."""
    try:
        stream_client().publish(stop_channel(version_pk), str(pk))
    except redis.RedisError as error:
        logger.warning("the stop of %s goes by the row's flag: %s", pk, error)
