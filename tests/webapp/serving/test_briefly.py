"""What is remembered for a moment: made once, seen by peeking, made anew when the moment is over."""

import pytest

from webapp.serving import briefly
from webapp.serving.briefly import Briefly


def test_answers_are_made_once_a_moment_and_peeking_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [100.0], []
    monkeypatch.setattr(briefly.time, "monotonic", lambda: now[0])
    kept: Briefly[str] = Briefly(seconds=1.0)

    def make() -> str:
        made.append(now[0])
        return f"made at {now[0]:g}"

    assert kept.peek("a") is None and made == []
    assert kept.get("a", make) == kept.get("a", make) == kept.peek("a") == "made at 100"
    now[0] += 1.5
    assert kept.peek("a") is None
    assert kept.get("a", make) == "made at 101.5" and len(made) == 2


def test_what_raises_is_not_kept() -> None:
    kept: Briefly[str] = Briefly()

    def fail() -> str:
        raise LookupError("not there")

    with pytest.raises(LookupError):
        kept.get("a", fail)
    assert kept.peek("a") is None and kept.get("a", lambda: "there") == "there"
