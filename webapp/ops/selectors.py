"""Whether the parts that the site needs answer right now."""

import logging

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest

from webapp.accounts.models import Scope
from webapp.accounts.selectors import api_key_by_secret

logger = logging.getLogger(__name__)

LOOPBACK = {"127.0.0.1", "::1"}
PROXIED = {"X-Forwarded-For", "Forwarded", "X-Real-Ip"}
ANSWER_SECONDS = 2.0
NO_ANSWER = "does not answer"


def may_read_metrics(request: HttpRequest) -> bool:
    """Whether the request comes from this machine, past no proxy, or has an administrator's key."""
    if request.META.get("REMOTE_ADDR") in LOOPBACK and not PROXIED & set(request.headers):
        return True
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    key = api_key_by_secret(secret.strip()) if kind.lower() == "bearer" else None
    return key is not None and Scope.ADMIN in key.scopes and key.owner.is_staff


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
