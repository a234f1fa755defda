"""500 clients that connect and drop at random moments, some never reading: afterwards everything is back."""

import asyncio
import json
import os
import random
import time
from collections import Counter

import httpx
import psutil
import pytest

from tests.webapp.api.conftest import Program
from tests.webapp.api.test_leaving import LONG, metric
from tests.webapp.serving.running_node import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

CLIENTS = 500
SECONDS = float(os.environ.get("PARLEY_CHAOS_SECONDS", "120"))
FILES = 40  # the database's four threads and Redis's pools may keep theirs
GROWTH_BYTES = 80 * 1024 * 1024


async def one(program: Program, number: int, until: float, statuses: "dict[str, int]") -> None:
    """Connect, ask, read for a moment or not at all, drop; again and again."""
    chance = random.Random(number)
    while time.monotonic() < until:
        body = json.dumps(program.chat(LONG, max_tokens=200, stream=chance.random() < 0.8)).encode()
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {program.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", program.site.port)
            cut = chance.random()
            writer.write(head + body if cut > 0.1 else (head + body)[:chance.randrange(1, len(head) + len(body))])
            await writer.drain()
            if chance.random() < 0.3:
                await asyncio.sleep(chance.uniform(0, 5))  # never reads
            else:
                async with asyncio.timeout(chance.uniform(0.01, 5)):
                    first = await reader.readline()
                    statuses[first[9:12].decode()] = statuses.get(first[9:12].decode(), 0) + 1
                    while await reader.read(4096):
                        pass
            writer.close()
        except (OSError, TimeoutError):
            writer.transport.abort()


def held(program: Program) -> tuple[int, int, int]:
    """Threads, open files and bytes of the web process."""
    web = psutil.Process(program.site.web_pid)
    return web.num_threads(), web.num_fds(), web.memory_info().rss


@pytest.mark.parametrize("live_site", ["int8", "postgres"], indirect=True)
def test_after_500_clients_that_drop_everything_is_back(program: Program) -> None:
    program.post("v1/chat/completions", program.chat())
    before = held(program)
    statuses: dict[str, int] = {}
    connections: list[int] = []

    async def watch(until: float) -> None:
        while time.monotonic() < until:
            connections.append(program.site.web_connections())
            await asyncio.sleep(1)

    async def run() -> None:
        until = time.monotonic() + SECONDS
        await asyncio.gather(watch(until), *(one(program, number, until, statuses) for number in range(CLIENTS)))

    asyncio.run(run())
    print(f"first lines: {statuses}; at most {max(connections)} connections to the database")
    assert max(connections) < 20
    assert set(statuses) <= {"200", "503", "400", ""}, statuses
    wait_for(lambda: metric(program, "vllm:num_requests_running") == 0
             and metric(program, "vllm:num_requests_waiting") == 0, seconds=60, what="nothing runs or waits")
    assert metric(program, "vllm:kv_cache_usage_perc") == 0
    web = psutil.Process(program.site.web_pid)
    print(f"connections: {Counter(row.status for row in web.net_connections())}, "
          f"files: {Counter(file.path.rpartition('/')[2] for file in web.open_files())}")
    wait_for(lambda: held(program)[1] <= before[1] + FILES, seconds=60, what="open files are back")
    after = held(program)
    print(f"threads, files, bytes before {before} and after {after}")
    assert after[0] <= before[0] + 10 and after[2] - before[2] < GROWTH_BYTES, (before, after)
    started = time.monotonic()
    answer = httpx.post(f"{program.site.url}v1/chat/completions", json=program.chat(), timeout=60,
                        headers={"authorization": f"Bearer {program.key}"})
    assert answer.status_code == 200 and time.monotonic() - started < 10
