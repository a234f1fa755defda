"""A conversation's title, taken from its first message."""

TITLE_CHARS = 60


def title_from(text: str) -> str:
    """Return the text on one line, cut at a word's end to about 60 characters."""
    line = " ".join(text.split())
    if len(line) <= TITLE_CHARS:
        return line
    head = line[:TITLE_CHARS]
    cut = head.rfind(" ")
    return (head[:cut] if cut > TITLE_CHARS // 2 else head).rstrip() + "…"
