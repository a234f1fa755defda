"""A title is the first message on one short line."""

import pytest

from webapp.chat.titles import title_from


@pytest.mark.parametrize(("text", "title"), [
    ("What is the capital of France?", "What is the capital of France?"),
    ("  one\n\n two\tthree ", "one two three"),
    ("word " * 30, "word " * 11 + "word…"),
    ("x" * 100, "x" * 60 + "…"),
    ("法国的首都是哪里?" * 10, ("法国的首都是哪里?" * 10)[:60] + "…"),
])
def test_title_is_one_line_cut_at_a_word(text: str, title: str) -> None:
    assert title_from(text) == title
