"""Whether the parts that the site needs answer right now."""

import logging

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
NO_ANSWER = "does not answer"


def readiness() -> dict[str, str]:
    """Return each part with "ok" or, in words, what is wrong. The words name no host: anybody may read them."""
    return {"database": _database(), "redis": _redis()}


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        logger.warning("The database does not answer: %s", error)
        return NO_ANSWER
    return "ok"


def _redis() -> str:
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=ANSWER_SECONDS, socket_timeout=ANSWER_SECONDS,
    )
    try:
        client.ping()
    except redis.BusyLoadingError:
        return "is still loading its data"
    except redis.RedisError as error:
        logger.warning("Redis does not answer: %s", error)
        return NO_ANSWER
    finally:
        client.close()
    return "ok"
