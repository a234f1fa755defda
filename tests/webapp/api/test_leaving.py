"""Clients that go away, and streams that wait: nothing runs for nobody, and no stream holds a thread or connection."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from tests.webapp.api.conftest import Program
from tests.webapp.serving.running_node import wait_for

pytestmark = pytest.mark.timeout(400)

AT_ONCE = 40
LONG = "Write a very long story about a lighthouse."


def states(program: Program, request_id: str) -> list[tuple[str, float]]:
    """State and seconds since the end of the generations of a request."""
    from django.utils import timezone

    from webapp.serving.models import Generation

    with program.site.database() as alias:
        rows = list(Generation.objects.using(alias).filter(request_id=request_id))
    return [(row.state, (timezone.now() - row.ended_at).total_seconds() if row.ended_at else -1.0) for row in rows]


@contextmanager
def streaming(program: Program, request_id: str) -> Iterator[Iterator[str]]:
    body = program.chat(LONG, max_tokens=2000, stream=True)
    with program.http as client, client.stream("POST", "v1/chat/completions", json=body,
                                               headers={"x-request-id": request_id}) as response:
        yield response.iter_lines()


def test_a_stream_that_is_left_ends_within_a_second(program: Program) -> None:
    with streaming(program, "left-stream") as lines:
        for _ in range(12):
            next(lines)
    left = time.monotonic()
    wait_for(lambda: states(program, "left-stream")[0][0] == "stopped", seconds=5, what="it is stopped")
    state, ago = states(program, "left-stream")[0]
    assert state == "stopped" and time.monotonic() - left - ago < 1.0


def test_a_whole_reply_that_is_left_ends_too(program: Program) -> None:
    with pytest.raises(httpx.ReadTimeout), program.http as client:
        client.post("v1/chat/completions", json=program.chat(LONG, max_tokens=2000, n=2, temperature=1.0),
                    headers={"x-request-id": "left-whole"}, timeout=1.0)
    wait_for(lambda: {state for state, _ in states(program, "left-whole")} == {"stopped"}, seconds=5,
             what="both are stopped")


def test_an_early_failure_has_a_status_and_a_late_one_is_an_event(program: Program) -> None:
    from webapp.serving.models import Generation

    with streaming(program, "stopped-by-another") as lines:
        for _ in range(8):
            next(lines)
        with program.site.database() as alias:
            Generation.objects.using(alias).filter(request_id="stopped-by-another").update(stop_requested=True)
        rest = [line for line in lines if line]
    assert '"error"' in rest[-2] and rest[-1] == "data: [DONE]"


def test_open_streams_hold_neither_threads_nor_connections(program: Program) -> None:
    """A small one that always runs; 500 clients that drop at random are a soak test too."""
    hold_streams(program, 80)


@pytest.mark.soak
@pytest.mark.parametrize("live_site", ["int8", "postgres"], indirect=True)
def test_nor_do_200_of_them_on_either_database(program: Program) -> None:
    hold_streams(program, 200)


def hold_streams(program: Program, count: int) -> None:
    """Open that many streams, count, close them, and see that everything is back."""
    web = psutil.Process(program.site.web_pid)
    before = web.num_threads()
    seen: dict[str, int] = {}

    async def open_all() -> None:
        headers = {"authorization": f"Bearer {program.key}"}
        body = program.chat(LONG, max_tokens=2000, stream=True)
        async with httpx.AsyncClient(base_url=program.site.url, headers=headers, timeout=60,
                                     limits=httpx.Limits(max_connections=None)) as client:
            streams: list[httpx.Response] = []
            while len(streams) < count:
                streams += await asyncio.gather(*(client.send(client.build_request(
                    "POST", "v1/chat/completions", json=body), stream=True) for _ in range(AT_ONCE)))
            refused = [await stream.aread() for stream in streams if stream.status_code != 200]
            assert not refused, refused[0]
            seen["open"] = sum(row.status == "ESTABLISHED" and row.laddr.port == program.site.port
                               for row in web.net_connections())
            seen["threads"], seen["connections"] = web.num_threads(), program.site.web_connections()
            for stream in streams:
                await stream.aclose()

    asyncio.run(open_all())
    print(f"before {before} threads; {seen}")
    assert seen["open"] >= count
    assert seen["threads"] - before < 10 and seen["threads"] < 20 and seen["connections"] < 12, (before, seen)
    wait_for(lambda: metric(program, "vllm:num_requests_running") == 0
             and metric(program, "vllm:num_requests_waiting") == 0, seconds=20, what="nothing runs or waits")
    assert metric(program, "vllm:kv_cache_usage_perc") == 0
    assert program.openai.chat.completions.create(**program.chat()).choices[0].message.content


def metric(program: Program, name: str) -> float:
    """A gauge of the chat model."""
    text = httpx.get(f"{program.site.url}metrics").text
    line = next(line for line in text.splitlines() if line.startswith(name) and "smollm2:1" in line)
    return float(line.rpartition(" ")[2])


def test_metrics_count_what_was_served_and_keep_to_those_who_may(program: Program) -> None:
    def counted() -> float:
        return metric(program, 'vllm:request_success_total{finished_reason="length"')

    program.post("v1/chat/completions", program.chat(max_tokens=2))
    before = counted()
    program.post("v1/chat/completions", program.chat(max_tokens=2))
    wait_for(lambda: counted() == before + 1, seconds=5, what="it is counted")
    assert metric(program, "vllm:time_to_first_token_seconds_count") > 0
    through_a_proxy = {"x-forwarded-for": "192.0.2.1"}
    url = f"{program.site.url}metrics"
    assert httpx.get(url, headers=through_a_proxy).status_code == 401
    assert httpx.get(url, headers=through_a_proxy | {"authorization": f"Bearer {program.key}"}).status_code == 200
