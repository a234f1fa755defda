"""Messages to the workers: run this generation, stop that one. Losing one costs time only: the row is the truth."""

import logging

import redis
from kombu.exceptions import OperationalError

from webapp.config.celery import app
from webapp.serving.streams import stream_client

logger = logging.getLogger(__name__)
RUN_TASK = "serving.generation_run"
WAKE_TASK = "serving.node_wake"


def model_queue(version_pk: int) -> str:
    """The Celery queue of a version; each of its model workers, on whatever machine, takes from it."""
    return f"model.{version_pk}"


def stop_channel(version_pk: int) -> str:
    """The Redis channel on which the model workers of a version hear what to stop."""
    return f"parley.stop.{version_pk}"


def generation_dispatch(*, pk: object, version_pk: int) -> bool:
    """Put a queued generation into its version's queue; false when the broker is away (the sweeper does it later)."""
    try:
        app.send_task(RUN_TASK, args=[str(pk)], queue=model_queue(version_pk), retry=True,
                      retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0.1})
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("generation %s waits for the broker: %s", pk, error)
        return False
    return True


def node_wake() -> None:
    """Have a node look at its deployments now instead of within a second."""
    try:
        app.send_task(WAKE_TASK, queue="node", retry=False, expires=5)
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("no node was woken: %s", error)


def stop_announce(*, pk: object, version_pk: int) -> None:
    """Tell the pump at once that a stop was asked for; it also finds the flag in the row within a second."""
    try:
        stream_client().publish(stop_channel(version_pk), str(pk))
    except redis.RedisError as error:
        logger.warning("the stop of %s goes by the row's flag: %s", pk, error)
