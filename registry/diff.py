"""What differs between two versions: configuration, tokenizer, files and sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import read_object
from registry.blobs import blob_path
from registry.models import Artifact, Version

Change = Literal["added", "removed", "changed", "same"]
CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json", "quantize_config.json",
           "adapter_config.json")
MAX_VALUE_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class ValueChange:
    """One key of a JSON file. old and new: the values as short text, empty where the key isn't there."""

    file: str
    key: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """One path. Sizes in bytes, 0 where the file isn't there."""

    path: str
    role: str
    change: Change
    old_size: int
    new_size: int


@dataclass(frozen=True, kw_only=True)
class VersionDiff:
    """How new differs from old. same_vocabulary: None where one of them has no known vocabulary. Sizes in bytes.

    unreadable: JSON files whose content isn't on this machine, or can't be read.
    """

    old: Version
    new: Version
    values: tuple[ValueChange, ...]
    files: tuple[FileChange, ...]
    same_vocabulary: bool | None
    old_size: int
    new_size: int
    unreadable: tuple[str, ...] = ()


def version_diff(*, old: Version, new: Version) -> VersionDiff:
    """Compare two versions, of one model or of two. Three queries at most; only small JSON files are read."""
    before, after = _artifacts(old), _artifacts(new)
    files = tuple(_file(path, before.get(path), after.get(path)) for path in sorted({*before, *after}))
    values: list[ValueChange] = []
    unreadable = []
    for name in CONFIGS:
        try:
            values += _values(name, _read(before.get(name)), _read(after.get(name)))
        except (ArtifactError, OSError):
            unreadable.append(name)
    known = old.vocabulary_sha256 and new.vocabulary_sha256
    return VersionDiff(
        old=old, new=new, values=tuple(values), files=files, unreadable=tuple(unreadable),
        same_vocabulary=old.vocabulary_sha256 == new.vocabulary_sha256 if known else None,
        old_size=sum(row.blob.size for row in before.values()), new_size=sum(row.blob.size for row in after.values()))


def _artifacts(version: Version) -> dict[str, Artifact]:
    return {row.path: row for row in version.artifacts.select_related("blob")}


def _file(path: str, old: Artifact | None, new: Artifact | None) -> FileChange:
    change: Change = "added" if old is None else "removed" if new is None else (
        "same" if old.blob_id == new.blob_id else "changed")
    role = (new or old).role  # type: ignore[union-attr]  # one of the two is there
    return FileChange(path=path, role=role, change=change, old_size=old.blob.size if old else 0,
                      new_size=new.blob.size if new else 0)


def _read(artifact: Artifact | None) -> dict[str, Any]:
    return read_object(blob_path(artifact.blob_id)) if artifact else {}


def _values(file: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ValueChange]:
    flat_old, flat_new = _flat(old), _flat(new)
    return [ValueChange(file=file, key=key, old=flat_old.get(key, ""), new=flat_new.get(key, ""))
            for key in sorted({*flat_old, *flat_new}) if flat_old.get(key) != flat_new.get(key)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested keys joined by dots, and each value as short text."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value)[:MAX_VALUE_CHARS]
    return found
