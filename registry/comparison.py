"""What differs between two versions: configuration, tokenizer, chat template, files and sizes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from registry.contents_shown import version_json
from registry.models import Artifact, Role, Version

SHOWN_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that differs; `before` or `after` is None where only the other version has it."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that differs. files: content by path, with sizes in bytes; bytes_before and bytes_after: of all files."""

    figures: list[Change]
    config: list[Change]
    tokenizer: list[Change]
    files: list[Change]
    same_files: int
    bytes_before: int
    bytes_after: int

    @property
    def same(self) -> bool:
        return not (self.figures or self.config or self.tokenizer or self.files)


def versions_compared(before: Version, after: Version) -> Comparison:
    """Compare two versions by what is stored of them."""
    left, right = _artifacts(before), _artifacts(after)
    return Comparison(
        figures=_figures(before, after),
        config=list(_changes(version_json(before, "config.json"), version_json(after, "config.json"))),
        tokenizer=_tokenizer(before, after, left, right),
        files=_files(left, right),
        same_files=sum(path in right and right[path].blob_id == artifact.blob_id for path, artifact in left.items()),
        bytes_before=sum(artifact.blob.size for artifact in left.values()),
        bytes_after=sum(artifact.blob.size for artifact in right.values()),
    )


def _artifacts(version: Version) -> dict[str, Artifact]:
    return {artifact.path: artifact for artifact in version.artifacts.select_related("blob")}


def _figures(before: Version, after: Version) -> list[Change]:
    pairs = [("Parameters", f"{before.parameters:,}", f"{after.parameters:,}"),
             ("Context", f"{before.context_length:,}", f"{after.context_length:,}"),
             ("Licence", before.licence, after.licence)]
    figures = [Change(name=name, before=left, after=right) for name, left, right in pairs if left != right]
    return figures + list(_changes(before.sampling, after.sampling, "sampling."))


def _tokenizer(before: Version, after: Version, left: Mapping[str, Artifact],
               right: Mapping[str, Artifact]) -> list[Change]:
    """Say whether both give the same ids, and what differs in the tokenizer's settings and the chat template."""
    changes = []
    if before.vocabulary_sha256 != after.vocabulary_sha256:
        changes.append(Change(name="vocabulary", before=before.vocabulary_sha256[:16] or "unknown",
                              after=after.vocabulary_sha256[:16] or "unknown"))
    changes += _changes(version_json(before, "tokenizer_config.json"), version_json(after, "tokenizer_config.json"))
    templates = [{path: artifact.blob_id[:16] for path, artifact in side.items() if artifact.role == Role.CHAT_TEMPLATE}
                 for side in (left, right)]
    return changes + list(_changes(templates[0], templates[1]))


def _files(left: Mapping[str, Artifact], right: Mapping[str, Artifact]) -> list[Change]:
    def words(artifact: Artifact | None) -> str | None:
        return f"{artifact.blob.size:,} bytes, {artifact.blob_id[:12]}…" if artifact else None

    return [Change(name=path, before=words(left.get(path)), after=words(right.get(path)))
            for path in sorted({*left, *right})
            if path not in left or path not in right or left[path].blob_id != right[path].blob_id]


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[Change]:
    """Yield the keys whose values differ, those of nested objects as `rope_scaling.factor`."""
    for key in sorted({*before, *after}):
        left, right = before.get(key), after.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from _changes(left, right, f"{prefix}{key}.")
        elif left != right or (key in before) != (key in after):
            yield Change(name=f"{prefix}{key}", before=_shown(left) if key in before else None,
                         after=_shown(right) if key in after else None)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"
