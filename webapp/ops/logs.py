"""Log files of the supervised parts: appended by the parts themselves, rotated and read here."""

import os
import shutil
from pathlib import Path

MAX_BYTES = 20 * 1024 * 1024
TAIL_BYTES = 8192


def rotate(path: Path, *, max_bytes: int = MAX_BYTES) -> None:
    """Move a file's content to `<name>.1` when it has grown too large.

    The parts hold the file open in append mode, so it is emptied in place; what they write in between is lost, at
    most some lines. Raises OSError.
    """
    if path.exists() and path.stat().st_size > max_bytes:
        shutil.copyfile(path, path.with_name(path.name + ".1"))
        os.truncate(path, 0)


def last_lines(path: Path, count: int, *, since: int = 0) -> list[str]:
    """Return the last lines that say something, written after byte `since`; none when there is no such file."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
