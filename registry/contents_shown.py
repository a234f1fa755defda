"""Reads small artifacts of a version for showing: its configuration and its card, as far as they are here."""

import json
from typing import Any

from registry.blobs import blob_path
from registry.models import Artifact, Role, Version

MAX_CARD_BYTES = 200_000
MAX_CONFIG_BYTES = 4_000_000


def version_config(version: Version) -> dict[str, Any]:
    """Return the version's config.json, or {} when there is none or it isn't here."""
    return version_json(version, "config.json")


def version_json(version: Version, path: str) -> dict[str, Any]:
    """Return a JSON object among the version's artifacts; {} when it is missing, too large or something else."""
    artifact = version.artifacts.filter(path=path).select_related("blob").first()
    if artifact is None or artifact.blob.size > MAX_CONFIG_BYTES:
        return {}
    try:
        value = json.loads(blob_path(artifact.blob_id).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def version_card(version: Version) -> str:
    """Return the text of the version's card without its metadata block; empty when there is none."""
    artifact: Artifact | None = version.artifacts.filter(role=Role.CARD).select_related("blob").first()
    if artifact is None:
        return ""
    try:
        with blob_path(artifact.blob_id).open("rb") as reader:
            text = reader.read(MAX_CARD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    if text.startswith("---\n"):
        head, fence, body = text[4:].partition("\n---\n")
        text = body if fence else head
    return text.strip()
