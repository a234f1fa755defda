"""Which paths a file inside a model may have: relative, plain, portable, and none twice."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from django.conf import settings

from registry.errors import ImportRefused, RegistryRefused

MAX_PATH_CHARS = 255
MAX_SOURCES = 500
MAX_DEPTH = 4


def check_path(path: str, error: type[RegistryRefused] = ImportRefused) -> None:
    """Raises the error for a path that could leave the model's folder, or that some system can't hold."""
    shown = path.encode("utf-8", "replace").decode()[:60]
    if not path or len(path) > MAX_PATH_CHARS:
        raise error(f"{shown or '(no name)'}: a path has 1 to {MAX_PATH_CHARS} characters")
    if "\0" in path or not path.isprintable():
        raise error(f"{shown!r}: the name has a character that can't be shown")
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or (len(path) > 1 and path[1] == ":"):
        raise error(f"{shown}: the path is absolute or has a drive or a backslash; give paths inside the model")
    if any(part in ("", ".", "..") for part in parts):
        raise error(f"{shown}: the path has an empty, '.' or '..' part")


def check_paths(paths: Sequence[str], error: type[RegistryRefused] = ImportRefused) -> None:
    """Raises the error for a bad path, for one given twice (case aside), and for a file that is another's folder."""
    seen: set[str] = set()
    for path in paths:
        check_path(path, error)
        if path.lower() in seen:
            raise error(f"{path}: is there twice")
        seen.add(path.lower())
    for path in seen:
        for parent in PurePosixPath(path).parents:
            if str(parent) in seen:
                raise error(f"{path}: {parent} is a file and can't be its folder")


def import_sources() -> list[tuple[str, int]]:
    """Return what looks like a model under the import roots: (path, bytes) of folders and GGUF files, at most 500."""
    found: list[tuple[str, int]] = []
    for root in settings.PARLEY_IMPORT_ROOTS:
        for parent, folders, names in os.walk(root):
            depth = len(Path(parent).relative_to(root).parts)
            folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < MAX_DEPTH else []
            paths = [Path(parent) / name for name in names if (Path(parent) / name).is_file()]
            if any(path.name in ("config.json", "adapter_config.json") for path in paths):
                found.append((parent, sum(path.stat().st_size for path in paths)))
                folders[:] = []
            else:
                found += [(str(path), path.stat().st_size) for path in sorted(paths) if path.suffix.lower() == ".gguf"]
            if len(found) >= MAX_SOURCES:
                return found[:MAX_SOURCES]
    return found


def checked_source(path: str) -> Path:
    """Return a source under one of the import roots, links resolved. Raises ImportRefused."""
    if not settings.PARLEY_IMPORT_ROOTS:
        raise ImportRefused("No folders may be imported from: PARLEY_IMPORT_ROOTS is not set on the server")
    if "\0" in path or not path:
        raise ImportRefused("path: name a folder or a .gguf file")
    resolved = Path(path).resolve()
    if not any(resolved.is_relative_to(Path(root).resolve()) for root in settings.PARLEY_IMPORT_ROOTS):
        raise ImportRefused(f"{path[:200]}: is not under a folder that may be imported from "
                            f"({', '.join(map(str, settings.PARLEY_IMPORT_ROOTS))})")
    if not resolved.exists():
        raise ImportRefused(f"{path[:200]}: there is no such file or folder")
    return resolved
