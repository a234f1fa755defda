"""Jobs of texts to embed: answered one by one, counted once, there for another worker when their engine is lost."""

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from inference.client import EngineLostError
from inference.pooled_calls import RequestRejectedError
from inference.protocol import Embed, Embedded, PooledFrame, PooledReply, Vectors
from webapp.accounts.models import Usage
from webapp.serving.dispatch import queue_length
from webapp.serving.pooled import (
    PooledAnswer,
    PooledJob,
    PooledRequest,
    answer_key,
    job_key,
    parse_answer,
    pooled_claim,
    pooled_dispatch,
    pooled_dispatch_again,
)
from webapp.serving.pooled_worker import pooled_run

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from registry.models import Version

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture
def job(ada: "User", bare_version: "Version") -> PooledJob:
    requests = [PooledRequest(
        frame=Embed(request_id=f"frame-{number}", inputs=[[1, 2]]), user=ada.pk, api_key=None, version=bare_version.pk,
        model=str(bare_version), endpoint="embeddings", request_id=f"req-{number}", tokens=2, at=time.time())
        for number in range(3)]
    return PooledJob(reply_to="parley.replies.test", requests=requests)


def answered(frame: PooledFrame, error: Exception | None = None) -> "Future[PooledReply]":
    """The future of an engine that has answered already."""
    future: Future[PooledReply] = Future()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(Embedded(request_id=frame.request_id, items=[Vectors(dense=b"\0" * 8)], queue_s=0, total_s=0))
    return future


def answer(redis: Any, number: int) -> PooledAnswer | None:
    body = redis.get(answer_key(f"frame-{number}"))
    return None if body is None else parse_answer(body)


def test_each_request_is_answered_and_counted_and_the_job_is_over(job: PooledJob, clean_redis: Any) -> None:
    refusal = RequestRejectedError("this model's vectors can't be cut", "dimensions")
    job_id = pooled_dispatch(job)
    assert queue_length(job.requests[0].version) == 1
    pooled_run(job_id, pool=lambda frame: answered(frame, refusal if frame.request_id == "frame-1" else None))
    first, second = answer(clean_redis, 0), answer(clean_redis, 1)
    assert first is not None and first.reply is not None and second is not None
    assert (second.reply, second.field) == (None, "dimensions")
    assert sorted(Usage.objects.values_list("request_id", "prompt_tokens")) == [("req-0", 2), ("req-2", 2)]
    assert not clean_redis.exists(job_key(job_id))
    pooled_run(job_id, pool=lambda frame: pytest.fail("a job that is over runs again"))
    assert not pooled_dispatch_again(job_id, version=job.requests[0].version)


def test_a_job_whose_engine_is_lost_is_there_for_the_next_worker(job: PooledJob, clean_redis: Any) -> None:
    job_id = pooled_dispatch(job)
    pooled_run(job_id, pool=lambda frame: answered(frame, EngineLostError("killed")))
    assert answer(clean_redis, 0) is None and clean_redis.exists(job_key(job_id))
    assert pooled_dispatch_again(job_id, version=job.requests[0].version)
    pooled_run(job_id, pool=answered)
    assert all(answer(clean_redis, number) is not None for number in range(3))
    assert Usage.objects.count() == 3


def test_a_job_in_somebodys_hands_is_not_sent_again(job: PooledJob, clean_redis: Any) -> None:
    job_id = pooled_dispatch(job)
    pooled_claim(job_id)
    assert not pooled_dispatch_again(job_id, version=job.requests[0].version)
    assert queue_length(job.requests[0].version) == 1
