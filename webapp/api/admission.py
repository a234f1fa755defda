"""What stands before every request to a model: does the name lead anywhere, is there room, are the limits kept."""

from dataclasses import dataclass
from pathlib import Path

import redis
from django.conf import settings

from registry.loads import version_load
from registry.models import Version
from registry.selectors import full_name, version_folder, version_resolve
from webapp.api.auth import Caller
from webapp.api.errors import ApiError, bad_value, model_not_found, overloaded
from webapp.serving.briefly import Briefly
from webapp.serving.dispatch import queue_length

ENDPOINTS = {"chat": "chat and completions", "embedding": "embeddings, rerank and score", "rerank": "rerank and score"}


@dataclass(frozen=True)
class Named:
    """What a request's `model` leads to. limit: most tokens of prompt and reply together."""

    version: Version
    adapter: Version | None
    limit: int

    @property
    def name(self) -> str:
        """The full name, which replies carry: a later version doesn't change what it means."""
        return full_name(self.version, self.adapter)


def model_named(*, reference: str, caller: Caller, kinds: tuple[str, ...] = ()) -> Named:
    """Find the version that `model` names, for a caller who may use it.

    Raises ApiError: 404 for an unknown or foreign one, 400 for one of another kind than `kinds`.
    """
    named = _named.get((caller.user.pk, reference), lambda: _resolve(reference, caller))
    kind = named.version.model.kind
    if kinds and kind not in kinds:
        raise ApiError(400, f"{named.version} is a model for {ENDPOINTS.get(kind, kind)} and can't be used here.",
                       code="model_kind", param="model")
    return named


def _resolve(reference: str, caller: Caller) -> Named:
    if not (reference.isascii() and reference.isprintable()):  # no name is, and databases refuse some characters
        raise model_not_found(reference)
    try:
        found = version_resolve(reference=reference, user=caller.user)
    except Version.DoesNotExist:
        raise model_not_found(reference) from None
    load = version_load(found.version)
    return Named(found.version, found.adapter, load.limit or found.version.context_length)


_named: Briefly[Named] = Briefly()
_folders: Briefly[Path] = Briefly()


def folder_of(version: Version) -> Path:
    """The version's files. Raises registry.errors.BlobMissing."""
    return _folders.get(version.pk, lambda: version_folder(version))


def require_room(version: Version) -> None:
    """Refuse while too many requests of a version wait already. Raises ApiError with 503."""
    try:
        waiting = queue_length(version.pk)
    except redis.RedisError:
        raise overloaded("The queue can't be reached right now.") from None
    if waiting >= settings.PARLEY_QUEUE_LIMIT:
        raise overloaded(f"{waiting} requests wait for {version} already. Try again later.")


def require_ids(ids: list[int], *, vocabulary: int, param: str) -> None:
    """Refuse token ids that the model doesn't have. Raises ApiError."""
    wrong = next((token_id for token_id in ids if not 0 <= token_id < vocabulary), None)
    if wrong is not None:
        raise bad_value(param, f"Token id {wrong} is outside of this model's vocabulary, 0 to {vocabulary - 1}.")
