"""Reads JSON objects from untrusted files: bounded in size and depth, without duplicate keys, `NaN` or surprises."""

import json
from pathlib import Path
from typing import Any

from inference.artifacts.errors import ArtifactError

MAX_CONFIG_BYTES = 4 * 1024 * 1024
LFS_PREFIX = b"version https://git-lfs.github.com/spec/"


def parse_object(data: bytes, *, file: str) -> dict[str, Any]:
    """Return the JSON object in data (UTF-8). Raises ArtifactError for anything else, duplicate keys included."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ArtifactError(file, f"the key {key[:100]!r} appears twice")
        return result

    def constant(name: str) -> Any:
        raise ArtifactError(file, f"{name} is not a JSON number")

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except ArtifactError:
        raise
    except (ValueError, RecursionError) as error:
        if data.startswith(LFS_PREFIX):
            raise ArtifactError(file, "is a Git LFS pointer, not the file itself") from None
        raise ArtifactError(file, f"is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ArtifactError(file, "is not a JSON object")
    return value


def read_object(path: Path, *, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Return the JSON object in the file at path. Raises ArtifactError when it is missing, too large or not JSON."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise ArtifactError(path.name, f"can't be read ({error.strerror})") from None
    if len(data) > limit:
        raise ArtifactError(path.name, f"is larger than {limit:,} bytes")
    return parse_object(data, file=path.name)


def read_object_if_present(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file at path, or an empty one when there is no such file."""
    return read_object(path) if path.is_file() else {}
