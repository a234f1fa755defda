"""Unpacks an uploaded archive into staging: every name and kind of entry is checked, and what it grows to is bounded.

Nothing is trusted that an archive says of itself: bytes are counted as they are written, and its format is told by its
content. Sources of the attacks: the zip-slip report (snyk, 2018), CVE-2007-4559 (tarfile), Fifield's "A better zip
bomb" (WOOT 2019).
"""

import bz2
import errno
import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from registry.errors import ImportRefused

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
CHUNK_BYTES = 1024 * 1024
MAX_ENTRIES = 5_000
MAX_PATH_CHARS = 255
MAX_RATIO = 200  # text of JSON packs 10 to 40 times; weights hardly at all
RATIO_FROM_BYTES = 64 * 1024 * 1024  # small archives may be as tight as they like
MAX_SINGLE_READ = 4 * 1024 * 1024  # a tar's extended header that wants more at once is a bomb
SPARE_DISK_BYTES = 256 * 1024 * 1024
_DRIVE = re.compile(r"[A-Za-z]:")
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, ValueError)

OnBytes = Callable[[int], None]


def is_archive(name: str) -> bool:
    """Say whether a file's name is that of an archive that `extract_archive` unpacks."""
    return name.lower().endswith(SUFFIXES)


def extract_archive(
    archive: Path, folder: Path, *, name: str, max_bytes: int | None = None, on_bytes: OnBytes | None = None
) -> None:
    """Unpack a zip or tar file, the latter perhaps packed with gzip, bzip2 or xz, into folder.

    name: what its sender calls it, for messages. max_bytes: the most that all files together may have; None takes what
    the disk has free. on_bytes: called with the bytes written so far. Hidden files are left out, as from a folder.
    Raises ImportRefused; the caller throws the folder away then.
    """
    limit = max_bytes if max_bytes is not None else max(0, shutil.disk_usage(folder).free - SPARE_DISK_BYTES)
    writer = _Writer(archive, folder, name=name, limit=limit, on_bytes=on_bytes)
    try:
        with archive.open("rb") as file:
            head = file.read(6)
        if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            _extract_zip(archive, writer)
        else:
            _extract_tar(archive, writer, head)
    except _DAMAGED as error:
        if isinstance(error, ImportRefused):
            raise
        raise ImportRefused(f"{name}: is not a zip or tar archive, or is damaged ({error})") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ImportRefused(f"{name}: the disk is full") from None
        raise ImportRefused(f"{name}: can't be unpacked ({error.strerror or error})") from None
    if not writer.written:
        raise ImportRefused(f"{name}: holds no files")


class _Writer:
    """Writes the entries of one archive: checked names, no doubles, and no more bytes than allowed."""

    def __init__(self, archive: Path, folder: Path, *, name: str, limit: int, on_bytes: OnBytes | None) -> None:
        self.folder, self.name, self.written = folder, name, 0
        self._packed, self._limit, self._on_bytes = archive.stat().st_size, limit, on_bytes
        self._bytes = self._entries = 0
        self._seen: set[str] = set()

    def count_entry(self) -> None:
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise ImportRefused(f"{self.name}: holds more than {MAX_ENTRIES:,} entries")

    def refuse_size(self, claimed: int) -> None:
        """Refuse an archive that would grow to so many bytes in all, claimed or seen."""
        if claimed > RATIO_FROM_BYTES and claimed > MAX_RATIO * self._packed:
            raise ImportRefused(f"{self.name}: {self._packed:,} bytes would grow to {claimed:,} or more; "
                                "this is a decompression bomb")
        if claimed > self._limit:
            raise ImportRefused(f"{self.name}: unpacks to {claimed:,} bytes or more, and {self._limit:,} are allowed")

    def write(self, path: str, reader: IO[bytes]) -> None:
        """Write one file. Hidden ones, and what macOS puts beside files, are left out."""
        entry = path.rstrip("/")
        if any(part.startswith(".") or part == "__MACOSX" for part in entry.split("/")):
            return
        if entry in self._seen:
            raise ImportRefused(f"{self.name}: holds {entry[:100]!r} twice")
        self._seen.add(entry)
        target = self.folder / entry
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = target.open("xb")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise ImportRefused(f"{self.name}: holds {entry[:100]!r} as a file and as a folder") from None
        with file:
            while chunk := reader.read(CHUNK_BYTES):
                self._bytes += len(chunk)
                self.refuse_size(self._bytes)
                file.write(chunk)
                if self._on_bytes:
                    self._on_bytes(self._bytes)
        self.written += 1

    def checked(self, path: str) -> str:
        """Return the name of an entry inside the folder, or refuse it, saying what is wrong with it."""
        shown = path[:100].encode("utf-8", "replace").decode()
        reason = None
        if "\0" in path:
            reason = "has a NUL in its name"
        elif path.startswith("/"):
            reason = "has an absolute path"
        elif _DRIVE.match(path):
            reason = "names a drive"
        elif "\\" in path:
            reason = "has a backslash in its name"
        elif ".." in path.split("/"):
            reason = "leads out of the folder with '..'"
        elif not path.strip("/") or any(ord(letter) < 32 for letter in path):
            reason = "has an empty name or control characters in it"
        elif len(path) > MAX_PATH_CHARS:
            reason = f"has a path of more than {MAX_PATH_CHARS} characters"
        if reason:
            raise ImportRefused(f"{self.name}: the entry {shown!r} {reason}")
        return "/".join(part for part in path.split("/") if part not in ("", "."))


def _extract_zip(archive: Path, writer: _Writer) -> None:
    with zipfile.ZipFile(archive) as source:
        entries = source.infolist()
        for entry in entries:
            writer.count_entry()
            # The library cuts a name at NUL; what was written is what counts.
            writer.checked(entry.orig_filename)
            _check_zip_kind(entry, writer)
        writer.refuse_size(sum(entry.file_size for entry in entries))
        for entry in entries:
            if not entry.is_dir():
                with source.open(entry) as reader:
                    writer.write(writer.checked(entry.orig_filename), reader)


def _check_zip_kind(entry: zipfile.ZipInfo, writer: _Writer) -> None:
    shown = entry.filename[:100]
    if entry.flag_bits & 1:
        raise ImportRefused(f"{writer.name}: the entry {shown!r} is encrypted")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise ImportRefused(f"{writer.name}: the entry {shown!r} is a symbolic link; links are refused")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ImportRefused(f"{writer.name}: the entry {shown!r} is not a plain file")


def _extract_tar(archive: Path, writer: _Writer, head: bytes) -> None:
    with _decompressed(archive, head) as stream:
        bounded = cast(IO[bytes], _BoundedReader(stream, writer))
        with tarfile.open(fileobj=bounded, mode="r:") as source:
            for entry in source:
                source.members = []  # type: ignore[attr-defined]  # the library would keep them all
                writer.count_entry()
                path = writer.checked(entry.name)
                _check_tar_kind(entry, writer)
                writer.refuse_size(entry.size)
                if entry.isreg() and (reader := source.extractfile(entry)) is not None:
                    writer.write(path, reader)


def _check_tar_kind(entry: tarfile.TarInfo, writer: _Writer) -> None:
    shown = entry.name[:100]
    if entry.issym():
        raise ImportRefused(f"{writer.name}: the entry {shown!r} is a symbolic link; links are refused")
    if entry.islnk():
        raise ImportRefused(f"{writer.name}: the entry {shown!r} is a hard link; links are refused")
    if entry.sparse is not None:
        raise ImportRefused(f"{writer.name}: the entry {shown!r} is a sparse file, which can claim any size")
    if not (entry.isreg() or entry.isdir()):
        raise ImportRefused(f"{writer.name}: the entry {shown!r} is not a plain file")


@contextmanager
def _decompressed(archive: Path, head: bytes) -> Iterator[IO[bytes]]:
    opener: Any = open
    if head[:2] == b"\x1f\x8b":
        opener = gzip.open
    elif head[:3] == b"BZh":
        opener = bz2.open
    elif head == b"\xfd7zXZ\0":
        opener = lzma.open
    with opener(archive, "rb") as stream:
        yield stream


class _BoundedReader:
    """A stream for tarfile that refuses bombs which are no entries: giant extended headers, and endless padding."""

    def __init__(self, stream: IO[bytes], writer: _Writer) -> None:
        self._stream, self._writer = stream, writer

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_SINGLE_READ:
            raise ImportRefused(f"{self._writer.name}: has a header of {size:,} bytes; this is a decompression bomb")
        data = self._stream.read(size)
        self._writer.refuse_size(self._stream.tell())
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        """Go forward in pieces, so that what is passed over is counted before it is unpacked."""
        if whence != os.SEEK_SET:
            raise ImportRefused(f"{self._writer.name}: is damaged")
        self._writer.refuse_size(position)
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()
