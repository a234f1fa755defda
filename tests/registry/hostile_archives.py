"""Hostile and broken archives, each with the words that must refuse it."""

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

Make = Callable[[Path], None]
BOMB_MB = 80


def zipped(*names: str, content: bytes = b"{}") -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(zipfile.ZipInfo(name), content)
    return make


def zip_of_kind(mode: int, content: bytes = b"/etc/passwd") -> Make:
    def make(path: Path) -> None:
        info = zipfile.ZipInfo("entry")
        info.create_system, info.external_attr = 3, (mode | 0o644) << 16
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(info, content)
    return make


def renamed_zip(old: bytes, new: bytes, *others: str) -> Make:
    """Write a name that zipfile itself wouldn't, of the same length."""
    def make(path: Path) -> None:
        zipped(*others, old.decode())(path)
        path.write_bytes(path.read_bytes().replace(old, new))
    return make


def encrypted(path: Path) -> None:
    zipped("config.json")(path)
    data = bytearray(path.read_bytes())
    data[6] |= 1  # local header's flags
    central = data.index(b"PK\x01\x02")
    data[central + 8] |= 1
    path.write_bytes(bytes(data))


def zip_bomb(path: Path) -> None:
    """80 MB of zeros in 80 kB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("zeros", "w") as file:
        for _ in range(BOMB_MB):
            file.write(bytes(2**20))


def lying_zip(path: Path) -> None:
    """The bomb again, with a claim of 100 bytes in its directory."""
    zip_bomb(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", BOMB_MB * 2**20), struct.pack("<I", 100)))


def overlapping_zip(path: Path) -> None:
    """Many names in the directory for the same packed megabytes (Fifield's bomb in small)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros0", bytes(8 * 2**20))
        first = archive.infolist()[0]
        for number in range(1, 100):
            twin = zipfile.ZipInfo(f"zeros{number}")
            for field in ("compress_type", "CRC", "compress_size", "file_size", "header_offset", "flag_bits"):
                setattr(twin, field, getattr(first, field))
            archive.filelist.append(twin)


def tarred(*names: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: str = "w") -> Make:
    def make(path: Path) -> None:
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
            for name in names:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, link
                info.size = 2 if kind == tarfile.REGTYPE else 0
                archive.addfile(info, io.BytesIO(b"{}"))
    return make


def tar_bomb(opener: Callable[..., object]) -> Make:
    """A file of 80 MB of zeros, packed."""
    def make(path: Path) -> None:
        info = tarfile.TarInfo("zeros")
        info.size = BOMB_MB * 2**20
        with opener(path, "wb") as file:  # type: ignore[attr-defined]
            file.write(info.tobuf())
            for _ in range(BOMB_MB):
                file.write(bytes(2**20))
            file.write(bytes(1024))
    return make


def long_header(path: Path) -> None:
    """An extended header of 80 MB, which a reader would take into memory at once."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, BOMB_MB * 2**20
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf())
        for _ in range(BOMB_MB):
            file.write(bytes(2**20))


def sparse(path: Path) -> None:
    """A GNU sparse file that claims 2^40 bytes in no space."""
    info = tarfile.TarInfo("sparse")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"00000000000\0", b"00000000000\0"
    header[483:495] = b"%011o\0" % (2**33 - 1)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + bytes(1024))


def nul_in_tar(path: Path) -> None:
    """A pax header can carry what the fixed header can't."""
    info = tarfile.TarInfo("config.json")
    info.pax_headers, info.size = {"path": "config.json\0.py"}, 2
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"{}"))


ARCHIVES: dict[str, tuple[str, Make, str]] = {
    "zip with ../": ("m.zip", zipped("../../evil.json"), "leads out of the folder with '..'"),
    "zip with ../ inside": ("m.zip", zipped("a/../../evil.json"), "leads out of the folder with '..'"),
    "zip with an absolute path": ("m.zip", zipped("/etc/evil.json"), "has an absolute path"),
    "zip with a drive": ("m.zip", zipped("C:/evil.json"), "names a drive"),
    "zip with a backslash": ("m.zip", renamed_zip(b"a/b.json", b"a\\b.json"), "has a backslash"),
    "zip with a NUL": ("m.zip", renamed_zip(b"config.jsonX.py", b"config.json\0.py"), "has a NUL in its name"),
    "zip with a symbolic link": ("m.zip", zip_of_kind(stat.S_IFLNK), "is a symbolic link"),
    "zip with a device": ("m.zip", zip_of_kind(stat.S_IFBLK), "is not a plain file"),
    "zip with a double": ("m.zip", renamed_zip(b"b.json", b"a.json", "a.json"), "holds 'a.json' twice"),
    "zip with a file as a folder": ("m.zip", zipped("a", "a/b"), "as a file and as a folder"),
    "zip with a long path": ("m.zip", zipped("x/" * 150 + "y"), "more than 255 characters"),
    "encrypted zip": ("m.zip", encrypted, "is encrypted"),
    "zip bomb": ("m.zip", zip_bomb, "decompression bomb"),
    "zip bomb that lies": ("m.zip", lying_zip, "decompression bomb|damaged"),
    "zip bomb of overlapping entries": ("m.zip", overlapping_zip, "decompression bomb"),
    "zip of 6,000 entries": ("m.zip", zipped(*(f"f{number}" for number in range(6000))), "more than 5,000 entries"),
    "zip without entries": ("m.zip", zipped(), "holds no files"),
    "zip that is cut short": ("m.zip", lambda path: zipped("a", content=bytes(999))(path) or path.write_bytes(
        path.read_bytes()[:60]) and None, "is not a zip or tar archive, or is damaged"),
    "text as zip": ("m.zip", lambda path: path.write_text("nothing here") and None, "is not a zip or tar archive"),
    "tar with ../": ("m.tar", tarred("../evil.json"), "leads out of the folder with '..'"),
    "tar with an absolute path": ("m.tar.gz", tarred("/etc/evil.json", mode="w:gz"), "has an absolute path"),
    "tar with a drive": ("m.tar", tarred("D:evil.json"), "names a drive"),
    "tar with a NUL": ("m.tar", nul_in_tar, "has a NUL in its name"),
    "tar with a symbolic link": ("m.tar.xz", tarred("x", kind=tarfile.SYMTYPE, link="/etc", mode="w:xz"),
                                 "is a symbolic link"),
    "tar with a hard link": ("m.tar", tarred("x", kind=tarfile.LNKTYPE, link="/etc/passwd"), "is a hard link"),
    "tar with a device": ("m.tar", tarred("x", kind=tarfile.BLKTYPE), "is not a plain file"),
    "tar with a pipe": ("m.tar", tarred("x", kind=tarfile.FIFOTYPE), "is not a plain file"),
    "tar with a sparse file": ("m.tar", sparse, "is a sparse file"),
    "tar with a double": ("m.tar.bz2", tarred("a.json", "a.json", mode="w:bz2"), "holds 'a.json' twice"),
    "tar bomb in gzip": ("m.tar.gz", tar_bomb(gzip.open), "decompression bomb"),
    "tar bomb in bzip2": ("m.tar.bz2", tar_bomb(bz2.open), "decompression bomb"),
    "tar bomb in xz": ("m.tar.xz", tar_bomb(lzma.open), "decompression bomb"),
    "tar bomb in a header": ("m.tar.gz", long_header, "decompression bomb"),
    "truncated gzip": ("m.tar.gz", lambda path: tarred("a", mode="w:gz")(path) or path.write_bytes(
        path.read_bytes()[:40]) and None, "is not a zip or tar archive, or is damaged"),
}  # fmt: skip
