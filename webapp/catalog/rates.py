"""Tokens per second from counters that only say how many there were so far, with the last minute for a small curve."""

import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

KEPT = 60


@dataclass
class _Series:
    at: float
    total: int
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


class Rates:
    """The rates of several counters as one watcher sees them: nothing is known at a counter's first look."""

    def __init__(self) -> None:
        self._series: dict[Hashable, _Series] = {}

    def note(self, key: Hashable, total: int, *, now: float | None = None) -> list[float]:
        """Take in a counter's total and return its rates per second, oldest first; a counter that fell starts anew."""
        now = time.monotonic() if now is None else now
        series = self._series.get(key)
        if series is None or total < series.total:
            self._series[key] = _Series(now, total)
            return []
        if now > series.at:
            series.rates.append((total - series.total) / (now - series.at))
            series.at, series.total = now, total
        return list(series.rates)
