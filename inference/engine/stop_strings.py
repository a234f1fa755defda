"""Passes text on until a stop string is complete, and holds back an end that may become one."""

from collections.abc import Iterator


class StopStrings:
    """Looks for stop strings in what a reader sees, and in the same text with its hidden control tokens.

    So a stop string that is a control token, or has a whole one in it, is found although the token isn't shown.
    include: the stop string that ends the text is part of it. `stopped` is true once one has been completed.
    """

    def __init__(self, stops: tuple[str, ...], *, include: bool = False) -> None:
        self._stops = stops
        self._include = include
        self._held = ""
        self._seen: list[bool] = []  # for each held character, whether a reader sees it
        self._whole: list[bool] = []  # … and whether a stop string may begin there: not inside a hidden token
        self._early = 0  # held characters that came when no stop string could end the text
        self.stopped = False

    def push(self, fresh: str, *, hidden: bool = False, may_stop: bool = True) -> str:
        """Return what may be shown, now that `fresh` follows.

        hidden: it is a control token's text, which is never shown. may_stop: false while the reply is shorter than
        it has to be; a stop string that is completed then is shown.
        """
        if not self._stops:
            return "" if hidden else fresh
        if hidden and not any(fresh in stop for stop in self._stops):
            return ""
        self._held += fresh
        self._seen += [not hidden] * len(fresh)
        self._whole += [not hidden or place == 0 for place in range(len(fresh))]
        self._early = self._early if may_stop else len(self._held)
        views = self._views()
        found = [match for view in views for match in self._matches(*view)]
        if found:
            end, start = min(found)  # the one complete first, reading character by character; the longest on a tie
            self.stopped = True
            return self._take(end if self._include else start)
        return self._take(min(_held_from(*view, self._stops) for view in views))

    def finish(self) -> str:
        """Return what is still held back, because nothing more will come."""
        return self._take(len(self._held))

    def _views(self) -> list[tuple[str, list[int]]]:
        """The held text with and without hidden parts, each with its characters' places and, last, the text's end."""
        everything = self._held, list(range(len(self._held) + 1))
        if all(self._seen):
            return [everything]
        places = [place for place, seen in enumerate(self._seen) if seen]
        return [everything, ("".join(self._held[place] for place in places), [*places, len(self._held)])]

    def _matches(self, text: str, places: list[int]) -> Iterator[tuple[int, int]]:
        """(end, start) of every stop string in a view that may end the text."""
        borders = [*self._whole, True]
        for stop in self._stops:
            index = text.find(stop)
            while index >= 0:
                end, start = places[index + len(stop) - 1] + 1, places[index]
                if end > self._early and borders[start] and borders[end]:
                    yield end, start
                    break
                index = text.find(stop, index + 1)

    def _take(self, end: int) -> str:
        """Remove the text before a place and return the part of it that a reader sees."""
        shown = "".join(char for char, seen in zip(self._held[:end], self._seen, strict=False) if seen)
        self._held, self._seen, self._whole = self._held[end:], self._seen[end:], self._whole[end:]
        self._early = max(0, self._early - end)
        return shown


def _held_from(text: str, places: list[int], stops: tuple[str, ...]) -> int:
    """Where the longest end of text begins that begins a stop string."""
    longest = 0
    for stop in stops:
        for length in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:length]):
                longest = length
                break
    return places[len(text) - longest]
