"""Reads a version's card for showing, as far as it is on this machine."""

from registry.blobs import blob_path
from registry.models import Artifact, Role, Version

MAX_CARD_BYTES = 200_000


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
