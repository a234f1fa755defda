"""Puts what a browser sent into staging: joins the chunks, compares digests, and unpacks an archive."""

import errno
import hashlib
import os
from pathlib import Path

from registry.chunks import chunk_count, chunks_read, upload_folder
from registry.errors import ImportRefused
from registry.models import Upload
from registry.staging import Progress, StagedFile, checked_name, refuse_pickle, stage_in_place

ARCHIVE = "archive"


def stage_upload(upload: Upload, folder: Path, on_progress: Progress | None) -> list[StagedFile]:
    """Fill folder with the files of a finished upload, or with those of the archive that it is.

    Raises ImportRefused where a file's SHA-256 isn't the one that the sender computed, and for all that `stage` and
    `extract_archive` refuse.
    """
    from registry.archives import extract_archive, is_archive

    total = sum(file["size"] for file in upload.files)
    if len(upload.files) == 1 and is_archive(upload.files[0]["path"]):
        archive = upload_folder(upload.pk) / ARCHIVE
        _join(upload, 0, archive, on_progress, 0, total)
        extract_archive(archive, folder, name=upload.files[0]["path"])
        archive.unlink(missing_ok=True)
        _without_top_folder(folder)
        return stage_in_place(folder, on_progress)
    staged, done = [], 0
    for number, file in enumerate(upload.files):
        checked_name(file["path"])
        staged.append(_join(upload, number, folder / file["path"], on_progress, done, total))
        done += file["size"]
    return staged


def _join(upload: Upload, number: int, target: Path, on_progress: Progress | None, before: int,
          total: int) -> StagedFile:
    """Write one file from its chunks, synced, hashing on the way."""
    file = upload.files[number]
    digest, size = hashlib.sha256(), 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as writer:
            for piece in chunks_read(upload.pk, number, chunk_count(file["size"], upload.chunk_bytes)):
                if not size:
                    refuse_pickle(file["path"], piece)
                digest.update(piece)
                writer.write(piece)
                size += len(piece)
                if on_progress:
                    on_progress("copying", before + size, total)
            writer.flush()
            os.fsync(writer.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ImportRefused(f"{file['path']}: the disk is full") from None
        raise ImportRefused(f"{file['path']}: can't be written ({error.strerror})") from None
    if digest.hexdigest() != file["sha256"]:
        raise ImportRefused(f"{file['path']}: its SHA-256 is {digest.hexdigest()} here and {file['sha256']} where it "
                            "was sent; it was damaged on the way, upload it again")
    return StagedFile(file["path"], size, digest.hexdigest())


def _without_top_folder(folder: Path) -> None:
    """Archives of a folder hold that one folder: take its content up."""
    inside = list(folder.iterdir())
    if len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink():
        top = inside[0].rename(folder / ".top")
        for path in list(top.iterdir()):
            path.rename(folder / path.name)
        top.rmdir()
