"""Maps a file into memory read-only, with readable errors."""

import mmap
from pathlib import Path

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import LFS_PREFIX


def map_file(path: Path) -> mmap.mmap:
    """Return the whole file as a read-only map. Raises ArtifactError when it is missing, empty or an LFS pointer."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise ArtifactError(path.name, "is empty") from None
    except OSError as error:
        raise ArtifactError(path.name, f"can't be read ({error.strerror})") from None
    if data[: len(LFS_PREFIX)] == LFS_PREFIX:
        raise ArtifactError(path.name, "is a Git LFS pointer, not the file itself")
    return data
