"""The model worker's side of embed and score: hands a job's requests to the engine and answers each as it is done."""

import logging
import queue
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from django.db import Error as DatabaseFailure
from django.db import connections

from inference.client import EngineLostError
from inference.pooled_calls import PoolingFailedError, RequestRejectedError
from inference.protocol import PooledFrame, PooledReply
from webapp.accounts.services import usage_record
from webapp.serving.metrics import pooled_observe
from webapp.serving.pooled import (
    CLAIM_SECONDS,
    PooledAnswer,
    PooledRequest,
    pooled_answer,
    pooled_claim,
    pooled_finish,
    pooled_let_go,
    pooled_take,
    usage_rows,
)

logger = logging.getLogger(__name__)
Pool = Callable[[PooledFrame], "Future[PooledReply]"]
Done = tuple[PooledRequest, "Future[PooledReply]"]


def pooled_run(job_id: str, *, pool: Pool) -> None:
    """See a job through; nothing happens when it is over. Run twice, it computes twice, and the first answer counts.

    pool: inference.client.EngineProcess.pool. A job whose engine is lost, or that can't be answered
    because Valkey is away (redis.RedisError), is sent again by whoever waits for it.
    """
    job = pooled_take(job_id)
    if job is None:
        return
    done: queue.SimpleQueue[Done] = queue.SimpleQueue()
    open_count, answered = 0, []
    for request in job.requests:
        try:
            future = pool(request.frame)
        except (EngineLostError, ValueError) as error:  # ValueError: the same job runs here already
            logger.info("job %s could not be handed over: %s", job_id, error)
            continue
        open_count += 1
        future.add_done_callback(partial(_note, done, request))
    lost = open_count < len(job.requests)
    while open_count:
        found = _take(done, job_id)
        open_count -= len(found)
        answers = [(request, _answer(future)) for request, future in found]
        lost = lost or any(answer is None for _, answer in answers)
        told = [(request, answer) for request, answer in answers if answer is not None]
        pooled_answer(job, [(request.frame.request_id, answer) for request, answer in told])
        answered += [request for request, answer in told if answer.reply is not None]
    _end(job_id, answered, lost=lost)


def _note(done: "queue.SimpleQueue[Done]", request: PooledRequest, future: "Future[PooledReply]") -> None:
    done.put((request, future))


def _take(done: "queue.SimpleQueue[Done]", job_id: str) -> list[Done]:
    """Wait for the next finished request and take all that are, keeping the claim meanwhile."""
    while True:
        try:
            found = [done.get(timeout=CLAIM_SECONDS / 3)]
            break
        except queue.Empty:
            pooled_claim(job_id)
    with suppress(queue.Empty):
        while True:
            found.append(done.get_nowait())
    return found


def _answer(future: "Future[PooledReply]") -> PooledAnswer | None:
    """The answer to tell; None where the engine is gone and another has to give it."""
    try:
        return PooledAnswer(reply=future.result())
    except RequestRejectedError as error:
        return PooledAnswer(error=error.reason, field=error.field or "input")
    except PoolingFailedError as error:
        return PooledAnswer(error=str(error))
    except EngineLostError:
        return None


def _end(job_id: str, answered: list[PooledRequest], *, lost: bool) -> None:
    rows = usage_rows(answered)
    pooled_observe(answered, seconds=[row.seconds for row in rows])
    try:
        usage_record(rows)
    except DatabaseFailure:
        logger.exception("the usage of job %s was not written", job_id)
    finally:
        connections.close_all()
    if lost:
        pooled_let_go(job_id)  # whoever waits sends it again, when another worker can take it
    else:
        pooled_finish(job_id)
