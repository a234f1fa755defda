"""Stop strings: in what a reader sees and in hidden tokens, shown or not, and never before they may end a reply."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.stop_strings import StopStrings

HIDDEN, SEEN = True, False
END = ("<end>", HIDDEN)

CASES = [
    ("a hidden token that is a stop string", ("<end>",), ["ab", END, "c"], "ab", "ab"),
    ("a stop string that ends with a hidden token", ("!\n<end>",), ["a!", "\n", END, "c"], "a", "a!\n"),
    ("a stop string that begins with a hidden token", ("<end>\nUser",), ["a", END, "\nUs", "er"], "a", "a\nUser"),
    ("a hidden token that only begins like one", ("<end>\nUser",), ["a", END, "\nAnd"], "a\nAnd", "a\nAnd"),
    ("text within a hidden token", ("end",), ["a", END, "b"], "ab", "ab"),
    ("text over the border of a hidden token", ("b<",), ["ab", END, "b"], "abb", "abb"),
    ("a hidden token within a stop string", ("STOP",), ["aST", END, "OP", "c"], "a", "aSTOP"),
    ("seven characters in three parts", ("STOP!!!",), ["aST", "OP!", "!!b"], "a", "aSTOP!!!"),
    ("one that begins another, complete first", ("END two", "END"), ["one END", " two"], "one ", "one END"),
    ("one that begins another, the longer first", ("END", "xEND"), ["one xEN", "D"], "one ", "one xEND"),
]


def shown(stops: tuple[str, ...], parts: list, **options: bool) -> str:
    matcher = StopStrings(stops, **options)
    text = ""
    for part in parts:
        fresh, hidden = part if isinstance(part, tuple) else (part, SEEN)
        text += matcher.push(fresh, hidden=hidden)
        if matcher.stopped:
            return text
    return text + matcher.finish()


@pytest.mark.parametrize(("what", "stops", "parts", "without", "included"), CASES, ids=[case[0] for case in CASES])
def test_a_stop_string_ends_the_text_with_or_without_itself(what, stops, parts, without, included):
    assert shown(stops, parts) == without
    assert shown(stops, parts, include=True) == included


def test_a_stop_string_that_comes_too_early_is_text():
    matcher = StopStrings(("STOP",))
    assert matcher.push("STOPST", may_stop=False) == "STOP"
    assert matcher.push("OP") == ""
    assert matcher.stopped


@given(text=st.text("ab", max_size=20), cuts=st.lists(st.integers(0, 20), max_size=5), early=st.integers(0, 20),
       stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), include=st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_parts_do_not_matter_beyond_what_may_stop(text, cuts, early, stops, include):
    """The slow twin reads character by character and stops at the first stop string that ends after `early`."""
    early = min(early, len(text))
    expected = text
    for end in range(early + 1, len(text) + 1):
        matches = [stop for stop in stops if text[:end].endswith(stop)]
        if matches:
            expected = text[:end] if include else text[:end - max(map(len, matches))]
            break
    places = sorted({0, early, len(text), *(cut for cut in cuts if cut <= len(text))})
    matcher, shown = StopStrings(tuple(stops), include=include), ""
    for first, last in zip(places, places[1:], strict=False):
        shown += matcher.push(text[first:last], may_stop=first >= early)
        if matcher.stopped:
            break
    else:
        shown += matcher.finish()
    assert shown == expected
