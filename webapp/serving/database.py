"""The few threads through which asynchronous code asks the database: however many streams are open, not one holds one.

Each thread keeps its connection while there is work and closes it when there has been none for a while.
"""

import asyncio
import contextvars
import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from django.db import Error as DatabaseFailure
from django.db import connections

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
THREADS = 4
IDLE_SECONDS = 5.0

Job = Callable[[], None]


class DatabaseThreads:
    """Runs jobs in order of arrival on at most `threads` threads, which begin as they are needed."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._jobs: queue.SimpleQueue[tuple[float, Job | None]] = queue.SimpleQueue()
        self._delay = 0.0
        self._starting = threading.Lock()
        self._started: list[threading.Thread] = []
        self._idle = 0

    def put(self, job: Job) -> None:
        """Run a job soon; never blocks. A job raises nothing."""
        with self._starting:
            if self._idle <= self._jobs.qsize() and len(self._started) < self._threads:
                thread = threading.Thread(target=self._work, name="database", daemon=True)
                self._started.append(thread)
                thread.start()
        self._jobs.put((time.monotonic(), job))

    @property
    def delay(self) -> float:
        """Seconds that the job which began last had waited, while others still wait; 0 when none does."""
        return self._delay if self._jobs.qsize() else 0.0

    @property
    def waiting(self) -> int:
        """Jobs that no thread has begun."""
        return self._jobs.qsize()

    def close(self) -> None:
        """End the threads and their connections, once the jobs so far are done; a later job begins new ones."""
        with self._starting:
            ending, self._started = self._started, []
        for _ in ending:
            self._jobs.put((time.monotonic(), None))
        for thread in ending:
            thread.join()

    def _work(self) -> None:
        used = False
        while True:
            self._idle += 1  # only a hint for `put`: a count that is off by one starts a thread early or late
            try:
                since, job = self._jobs.get(timeout=IDLE_SECONDS if used else None)
            except queue.Empty:
                connections.close_all()
                used = False
                continue
            finally:
                self._idle -= 1
            if job is None:
                connections.close_all()
                return
            self._delay = time.monotonic() - since
            job()
            used = True


database_threads = DatabaseThreads()


async def in_database(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that uses the ORM on one of the database's threads and return what it returns.

    A cancelled caller stops waiting; what has begun runs to its end, what hasn't never begins.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def job() -> None:
        if future.cancelled():
            return
        try:
            result, error = context.run(function, *args, **kwargs), None
        except BaseException as failure:
            result, error = None, failure
            if isinstance(failure, DatabaseFailure):  # the next job gets a fresh connection
                connections.close_all()
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(_settle, future, result, error)

    database_threads.put(job)
    return await future


def database_later(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Have a database thread call a function; nobody waits, and what it raises is logged."""
    context = contextvars.copy_context()

    def job() -> None:
        try:
            context.run(function, *args, **kwargs)
        except Exception as error:
            logger.exception("%s failed", getattr(function, "__name__", function))
            if isinstance(error, DatabaseFailure):
                connections.close_all()

    database_threads.put(job)


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
