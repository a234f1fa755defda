"""Frames to an engine that are answered under a key, and the threads that wait for the answers."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from inference.protocol import AdapterChanged, ClientFrame, Stats

Answer = Stats | AdapterChanged


class Questions:
    """The questions that are open. `ask` may be called from any thread, the others from the one that reads frames."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = 0
        self._open: dict[int, Future[Answer]] = {}

    def ask(self, make: Callable[[int], ClientFrame], send: Callable[[ClientFrame], None], timeout: float) -> Answer:
        """Send the frame made with a key of its own and return the answer that has the key.

        Raises what `send` or `fail_all` says, or TimeoutError after `timeout` seconds.
        """
        future: Future[Answer] = Future()
        with self._lock:
            self._keys += 1
            key = self._keys
            self._open[key] = future
        try:
            send(make(key))
            return future.result(timeout)
        except TimeoutError:
            raise TimeoutError(f"the engine gave no answer within {timeout:g} s") from None
        finally:
            with self._lock:
                self._open.pop(key, None)

    def settle(self, answer: Answer) -> None:
        """Give an answer to whoever waits for it; one that comes too late is dropped."""
        with self._lock:
            future = self._open.pop(answer.request_key, None)
        if future is not None:
            future.set_result(answer)

    def fail_all(self, error: Exception) -> None:
        """End every open question with an error."""
        with self._lock:
            futures, self._open = list(self._open.values()), {}
        for future in futures:
            future.set_exception(error)
