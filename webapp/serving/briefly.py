"""Remembers for a moment what every request asks the database again: who a key is, what a model's name means.

Changes are seen after SECONDS at the latest, so a revoked key or a closed model is refused within that time.
"""

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
SECONDS = 1.0
MOST = 1024


class Briefly(Generic[T]):
    """Answers by key, each kept for SECONDS. Safe to use from several threads; what raises is not kept."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._kept: dict[Hashable, tuple[float, T]] = {}

    def peek(self, key: Hashable) -> T | None:
        """The answer to `key` that is remembered, if any; never asks anything."""
        found = self._kept.get(key)
        return found[1] if found is not None and time.monotonic() - found[0] < self._seconds else None

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The answer to `key`, made anew when there is none or it is too old."""
        now = time.monotonic()
        found = self._kept.get(key)
        if found is not None and now - found[0] < self._seconds:
            return found[1]
        made = make()
        if len(self._kept) >= MOST:
            self._kept = {}
        self._kept[key] = (now, made)
        return made

    def forget(self) -> None:
        """Drop everything, for tests that change what was remembered."""
        self._kept = {}
