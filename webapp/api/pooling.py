"""What embeddings, rerank and score share: from a request to the engine's frame, and from its reply to numbers."""

import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import redis

from inference.protocol import PooledFrame, PooledReply
from registry.errors import BlobMissing
from registry.models import Deployment
from webapp.api.admission import Named, folder_of, model_named, require_room
from webapp.api.auth import Caller
from webapp.api.errors import ApiError, bad_value, failed, overloaded, refused
from webapp.api.limits import limits_take
from webapp.config.request_ids import request_id
from webapp.serving.briefly import Briefly
from webapp.serving.errors import GenerationRefused
from webapp.serving.pooled import PooledRequest
from webapp.serving.pooled_calls import PooledFailed, PooledRefused, pooled_calls
from webapp.serving.services import version_ensure_loading

FIELDS = {"inputs": "input", "outputs": "outputs", "dimensions": "dimensions", "model": "model"}


@dataclass(frozen=True)
class PooledPlan:
    """A frame that is ready to go, and what it counts."""

    named: Named
    frame: PooledFrame
    tokens: int


_loading: Briefly[None] = Briefly()
_facts: Briefly[list[str]] = Briefly()


def new_frame_id() -> str:
    return uuid4().hex


def model_for_pooling(*, reference: str, caller: Caller) -> tuple[Named, Path]:
    """The version that embeds or scores, its loading begun, and its files. Raises ApiError."""
    named = model_named(reference=reference, caller=caller, kinds=("embedding", "rerank"))
    require_room(named.version)
    try:
        _loading.get(named.version.pk, lambda: version_ensure_loading(version=named.version))
        return named, folder_of(named.version)
    except GenerationRefused as error:
        raise refused(error) from error
    except BlobMissing as error:
        raise overloaded(f"{named.version} can't be used: {error}", retry_after=30) from error


def facts_of(named: Named, name: str) -> list[str]:
    """What the version's engine said of itself when it was loaded last; empty when nothing is known yet."""
    return _facts.get((named.version.pk, name), lambda: _said(named, name))


def _said(named: Named, name: str) -> list[str]:
    for facts in Deployment.objects.filter(version=named.version).values_list("facts", flat=True):
        if facts.get(name):
            return list(facts[name])
    return []


async def pooled_reply(plan: PooledPlan, caller: Caller, *, endpoint: str) -> tuple[PooledReply, dict[str, str]]:
    """The engine's reply and the headers of the limits. Raises ApiError."""
    request = PooledRequest(
        frame=plan.frame, user=caller.user.pk, api_key=caller.key.pk, version=plan.named.version.pk,
        model=plan.named.name, endpoint=endpoint, request_id=request_id(), tokens=plan.tokens, at=time.time())
    try:
        headers = await limits_take(caller.limits, tokens=plan.tokens)
        return await pooled_calls().call(request), headers
    except PooledRefused as error:
        if error.field in ("inputs", "documents", "queries", "method", "outputs", "dimensions"):
            raise bad_value(FIELDS.get(error.field, error.field), f"{error}.") from error
        raise ApiError(400, str(error), code="invalid_value") from error
    except PooledFailed as error:
        raise failed(str(error), code="pooling_failed") from error
    except GenerationRefused as error:
        raise refused(error) from error
    except TimeoutError:
        raise overloaded("No answer came in time. Try again later.", retry_after=30) from None
    except redis.RedisError:
        raise overloaded("The queue can't be reached right now.") from None


def floats(raw: bytes) -> "array[float]":
    """Little-endian float32 as numbers."""
    found = array("f")
    found.frombytes(raw)
    return found
