"""Tokens per second from totals, as one watcher sees them."""

import pytest

from webapp.catalog.rates import KEPT, Rates


def test_a_rate_is_the_difference_over_the_time() -> None:
    rates = Rates()
    assert rates.note("a", 100, now=10.0) == []
    assert rates.note("a", 150, now=12.0) == [25.0]
    assert rates.note("b", 7, now=12.0) == []
    assert rates.note("a", 150, now=13.0) == [25.0, 0.0]


def test_a_total_that_fell_starts_anew_and_no_time_gives_no_rate() -> None:
    rates = Rates()
    rates.note("a", 100, now=1.0)
    assert rates.note("a", 110, now=1.0) == []
    assert rates.note("a", 5, now=2.0) == []
    assert rates.note("a", 15, now=3.0) == [10.0]


def test_only_the_last_minute_is_kept() -> None:
    rates = Rates()
    for second in range(KEPT + 20):
        kept = rates.note("a", second * 3, now=float(second))
    assert kept == pytest.approx([3.0] * KEPT)
