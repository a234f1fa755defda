"""Copies a model into a staging folder of its own, hashing on the way and refusing what is not a plain file."""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from django.conf import settings

from registry.errors import ImportRefused

CHUNK_BYTES = 4 * 1024 * 1024
MAX_FILES = 5_000
MAX_PATH_CHARS = 255
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
CODE_SUFFIXES = (".py", ".pyc", ".so")

Progress = Callable[[str, int, int], None]
"""Called with phase ("copying", "verifying"), bytes done and bytes in all."""


@dataclass(frozen=True)
class StagedFile:
    """A file in staging: its path inside the model, its size in bytes and its SHA-256."""

    path: str
    size: int
    sha256: str


@contextmanager
def staging_folder() -> Iterator[Path]:
    """Yield an empty folder under PARLEY_STAGING and remove it afterwards; also remove what dead imports left.

    A lock file beside the folder is held as long as its import lives, so that only leftovers are removed.
    """
    root: Path = settings.PARLEY_STAGING
    root.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(root)
    folder = root / uuid.uuid4().hex
    lock = _take_lock(folder.with_suffix(".lock"))
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_suffix(".lock").unlink(missing_ok=True)
        os.close(lock)


def _take_lock(path: Path) -> int:
    """Create and lock a file. Another import may take a file for a leftover before it is locked: then try again."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def staging_clean() -> int:
    """Remove what imports left that ended without cleaning up; return how many there were."""
    return _remove_leftovers(settings.PARLEY_STAGING)


def _remove_leftovers(root: Path) -> int:
    removed = 0
    for path in root.glob("*.lock"):
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
            removed += 1
        finally:
            os.close(handle)
    return removed


def stage(source: Path, folder: Path, on_progress: Progress | None = None) -> list[StagedFile]:
    """Copy a model's folder, or its one .gguf file, into folder. Hidden files such as .git are left out.

    Raises ImportRefused for links, devices, pickles and Python code, for too many files, and when the disk is full.
    """
    files = _listed(source)
    total, done = sum(path.stat().st_size for _, path in files), 0
    staged = []
    for name, path in files:
        def report(copied: int, before: int = done) -> None:
            if on_progress:
                on_progress("copying", before + copied, total)

        staged.append(_copy(name, path, folder / name, report))
        done += staged[-1].size
    return staged


def _listed(source: Path) -> list[tuple[str, Path]]:
    """Return (path inside the model, file) of everything to copy."""
    if source.is_file():
        if source.suffix.lower() != ".gguf":
            raise ImportRefused(f"{source.name}: give a folder, or one .gguf file")
        return [(source.name, source)]
    if not source.is_dir():
        raise ImportRefused(f"{source}: there is no such file or folder")
    found: list[tuple[str, Path]] = []
    for parent, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted([*names, *(name for name in folders if (Path(parent) / name).is_symlink())]):
            if not name.startswith("."):
                path = Path(parent) / name
                found.append((_checked(path, path.relative_to(source)), path))
                if len(found) > MAX_FILES:
                    raise ImportRefused(f"{source.name}: holds more than {MAX_FILES:,} files")
    if not found:
        raise ImportRefused(f"{source.name}: the folder is empty")
    return found


def _checked(path: Path, inside: Path) -> str:
    """Return the path inside the model as text, or refuse the file for its kind, name or suffix."""
    name = str(PurePosixPath(inside))
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ImportRefused(f"{name.encode('utf-8', 'replace').decode()}: the name is not UTF-8") from None
    if len(name) > MAX_PATH_CHARS:
        raise ImportRefused(f"{name[:60]}…: the path is longer than {MAX_PATH_CHARS} characters")
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise ImportRefused(f"{name}: is a link; links are refused, so that nothing outside the folder is read")
    if not stat.S_ISREG(mode):
        raise ImportRefused(f"{name}: is not a plain file")
    return checked_name(name)


def checked_name(name: str) -> str:
    """Return the path, or refuse what is a pickle or program code by its suffix. Raises ImportRefused."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in PICKLE_SUFFIXES:
        raise ImportRefused(f"{name}: is a pickle by its suffix; pickles can run code, use safetensors or GGUF")
    if suffix in CODE_SUFFIXES:
        raise ImportRefused(f"{name}: is program code, which is never run for a model")
    return name


def stage_in_place(folder: Path, on_progress: Progress | None = None) -> list[StagedFile]:
    """Hash the files that lie in a staging folder already, with the same refusals as `stage`."""
    files = _listed(folder)
    total, done = sum(path.stat().st_size for _, path in files), 0
    staged = []
    for name, path in files:
        digest, size = hashlib.sha256(), 0
        with path.open("rb+") as reader:
            while chunk := reader.read(CHUNK_BYTES):
                if not size:
                    refuse_pickle(name, chunk)
                digest.update(chunk)
                size += len(chunk)
                if on_progress:
                    on_progress("copying", done + size, total)
            os.fsync(reader.fileno())
        staged.append(StagedFile(name, size, digest.hexdigest()))
        done += size
    return staged


def _copy(name: str, source: Path, target: Path, report: Callable[[int], None]) -> StagedFile:
    """Copy one file and sync it. A link that was put there since the listing is not followed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    try:
        with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW), "rb") as reader, target.open("wb") as writer:
            while chunk := reader.read(CHUNK_BYTES):
                if not size:
                    refuse_pickle(name, chunk)
                digest.update(chunk)
                writer.write(chunk)
                size += len(chunk)
                report(size)
            writer.flush()
            os.fsync(writer.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ImportRefused(f"{name}: the disk is full") from None
        raise ImportRefused(f"{name}: can't be copied ({error.strerror})") from None
    return StagedFile(name, size, digest.hexdigest())


def refuse_pickle(name: str, head: bytes) -> None:
    """Refuse by content: a pickle's protocol mark, or the zip that torch.save writes.

    A safetensors file may begin with the same bytes, its header's length; its own check tells them apart.
    """
    if name.endswith(".safetensors"):
        return
    protocol = head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if protocol or (head[:2] == b"PK" and b"/data.pkl" in head[:4096]):
        raise ImportRefused(f"{name}: is a pickle; pickles can run code, use safetensors or GGUF")


def stage_derived(folder: Path, name: str, content: bytes) -> StagedFile:
    """Write a file that was derived from the others into staging."""
    with (folder / name).open("wb") as writer:
        writer.write(content)
        writer.flush()
        os.fsync(writer.fileno())
    return StagedFile(name, len(content), hashlib.sha256(content).hexdigest())
