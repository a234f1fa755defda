"""Texts to embed and pairs to score: no rows, but payloads and replies in Redis under keys that expire.

A job is what one process had to ask of one version at one moment, often the requests of several clients; its message to
the version's queue carries the job's id alone. The model worker puts each reply under a key of its own and says so on
the channel of the process that waits for it; that process also looks by itself, since such a message can be lost.
"""

import logging
import time
from collections.abc import Sequence
from uuid import uuid4

import msgspec
from django.conf import settings
from kombu.exceptions import OperationalError

from inference.protocol import Embedded, PooledFrame, Scored
from webapp.accounts.models import Usage
from webapp.config.celery import app
from webapp.serving.dispatch import IN_TURN, model_queue
from webapp.serving.streams import bytes_client

logger = logging.getLogger(__name__)
POOLED_TASK = "serving.pooled_run"
REPLY_SECONDS = 120
CLAIM_SECONDS = 10
CHANNEL_END = ".pooled"


class PooledRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One client's request on its way to the engine, with what its usage row needs. at: seconds since the epoch."""

    frame: PooledFrame
    user: int
    api_key: int | None
    version: int
    model: str
    endpoint: str
    request_id: str
    tokens: int
    at: float


class PooledJob(msgspec.Struct, frozen=True, kw_only=True):
    """Requests to one version that travel together. reply_to: the channel of the process that waits for them."""

    reply_to: str
    requests: list[PooledRequest]


class PooledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's reply, or why there is none: `field` is set where the request itself was wrong."""

    reply: Embedded | Scored | None = None
    error: str = ""
    field: str = ""


_encode = msgspec.msgpack.Encoder().encode
_job_decoder = msgspec.msgpack.Decoder(PooledJob)
_answer_decoder = msgspec.msgpack.Decoder(PooledAnswer)
_ids_decoder = msgspec.json.Decoder(list[str])


def job_key(job_id: str) -> str:
    return f"pooled:job:{job_id}"


def claim_key(job_id: str) -> str:
    return f"pooled:claim:{job_id}"


def answer_key(request_id: str) -> str:
    """request_id: of the frame."""
    return f"pooled:answer:{request_id}"


def pooled_dispatch(job: PooledJob) -> str:
    """Put a job into its version's queue and return its id. Raises redis.RedisError or OSError."""
    job_id = uuid4().hex
    bytes_client().set(job_key(job_id), _encode(job), ex=settings.PARLEY_QUEUE_SECONDS)
    _send(job_id, job.requests[0].version)
    return job_id


def pooled_dispatch_again(job_id: str, *, version: int) -> bool:
    """Send a job's message again when no worker has it in hand; false when one has, or the job is over."""
    with bytes_client().pipeline(transaction=False) as pipe:
        pipe.exists(job_key(job_id))
        pipe.exists(claim_key(job_id))
        waiting, claimed = pipe.execute()
    if waiting and not claimed:
        _send(job_id, version)
    return bool(waiting and not claimed)


def _send(job_id: str, version: int) -> None:
    try:
        app.send_task(POOLED_TASK, args=[job_id], queue=model_queue(version), priority=IN_TURN, retry=False,
                      expires=settings.PARLEY_QUEUE_SECONDS)
    except OperationalError as error:
        raise ConnectionError(str(error)) from error


def pooled_take(job_id: str) -> PooledJob | None:
    """The job, for the worker that runs it; None when it is over or too old. Raises redis.RedisError."""
    body = bytes_client().get(job_key(job_id))
    pooled_claim(job_id)
    assert not isinstance(body, str), "this client decodes nothing"
    return None if body is None else _job_decoder.decode(body)


def pooled_claim(job_id: str) -> None:
    """Say that a worker has the job in hand, for the next seconds. Raises redis.RedisError."""
    bytes_client().set(claim_key(job_id), b"1", ex=CLAIM_SECONDS)


def pooled_let_go(job_id: str) -> None:
    """Say that nobody has the job in hand any more. Raises redis.RedisError."""
    bytes_client().delete(claim_key(job_id))


def pooled_answer(job: PooledJob, answers: Sequence[tuple[str, PooledAnswer]]) -> None:
    """Store answers by the ids of their frames and tell the process that waits. Raises redis.RedisError."""
    with bytes_client().pipeline(transaction=False) as pipe:
        for request_id, answer in answers:
            pipe.set(answer_key(request_id), _encode(answer), ex=REPLY_SECONDS)
        pipe.publish(job.reply_to + CHANNEL_END, msgspec.json.encode([request_id for request_id, _ in answers]))
        pipe.execute()


def pooled_finish(job_id: str) -> None:
    """Forget a job that was answered. Raises redis.RedisError."""
    bytes_client().delete(job_key(job_id), claim_key(job_id))


def parse_answer(body: bytes) -> PooledAnswer:
    return _answer_decoder.decode(body)


def parse_ids(message: bytes) -> list[str]:
    """The frames' ids in a message of pooled_answer. Raises msgspec.MsgspecError."""
    return _ids_decoder.decode(message)


def usage_rows(requests: Sequence[PooledRequest]) -> list[Usage]:
    """What answered requests used."""
    return [Usage(user_id=row.user, api_key_id=row.api_key, version_id=row.version, model=row.model,
                  endpoint=row.endpoint, request_id=row.request_id, prompt_tokens=row.tokens,
                  seconds=max(0.0, time.time() - row.at)) for row in requests]

