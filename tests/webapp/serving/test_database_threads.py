"""The database's threads: how long jobs wait is known while they do, and forgotten when nothing waits."""

import threading
import time

import pytest

from tests.webapp.serving.running_node import wait_for
from webapp.serving.database import DatabaseThreads


@pytest.mark.django_db(transaction=True)
def test_the_delay_is_how_long_the_last_job_waited_and_nothing_when_none_waits() -> None:
    threads, door = DatabaseThreads(threads=1), threading.Event()
    begun = threading.Event()
    assert threads.delay == 0.0
    threads.put(lambda: begun.set() or door.wait(10))  # type: ignore[func-returns-value]
    begun.wait(10)
    second, third = threading.Event(), threading.Event()
    threads.put(lambda: second.set() or third.wait(10))  # type: ignore[func-returns-value]
    threads.put(lambda: None)
    assert threads.waiting == 2 and threads.delay < 0.2  # the first had not waited
    time.sleep(0.25)
    door.set()
    second.wait(10)
    assert threads.waiting == 1 and threads.delay >= 0.25
    third.set()
    wait_for(lambda: threads.waiting == 0 and threads.delay == 0.0, seconds=5, what="nothing waits")
    threads.close()
