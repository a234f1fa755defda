"""Writes of the accounts app: API keys and usage rows."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now

from webapp.accounts.models import ApiKey, Scope, Usage

KEY_START = "sk-parley-"
SECRET_BYTES = 32
SHOWN_CHARS = len(KEY_START) + 4
MAX_NAME = 64
MAX_KEYS = 50  # live ones of one person
USED_EVERY = timedelta(minutes=1)  # how exact "last used" is


class KeyRefused(ValueError):
    """A key that can't be made, in words for the person who asked. `field` says what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class NewKey:
    """A key that was just made. `secret` is in no table: this is the one time that anybody sees it."""

    key: ApiKey
    secret: str


def api_key_create(*, owner: User, name: str, scopes: Iterable[str]) -> NewKey:
    """Make a key. Raises KeyRefused: no name, no or unknown scopes, too many keys, or `admin` for somebody else."""
    name, wished = name.strip(), sorted(set(scopes))
    if not 1 <= len(name) <= MAX_NAME:
        raise KeyRefused("name", f"Give it a name of 1 to {MAX_NAME} characters.")
    if not wished or not set(wished) <= set(Scope.values):
        raise KeyRefused("scopes", f"Choose at least one of {', '.join(Scope.values)}.")
    if Scope.ADMIN in wished and not owner.is_staff:
        raise KeyRefused("scopes", "Only an administrator's key can have the scope admin.")
    if ApiKey.objects.filter(owner=owner, revoked_at=None).count() >= MAX_KEYS:
        raise KeyRefused("name", f"There are {MAX_KEYS} keys already; revoke one first.")
    secret = KEY_START + secrets.token_urlsafe(SECRET_BYTES)
    key = ApiKey.objects.create(owner=owner, name=name, scopes=wished, digest=key_digest(secret),
                                start=secret[:SHOWN_CHARS])
    return NewKey(key, secret)


def api_key_revoke(*, key: ApiKey) -> None:
    """End a key for ever; one that has ended stays so."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now())


def api_key_used(*, key: ApiKey) -> None:
    """Note that a key was used; writes at most once a minute."""
    stale = Q(last_used_at=None) | Q(last_used_at__lt=Now() - USED_EVERY)
    ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=Now())


def key_digest(secret: str) -> str:
    """The SHA-256 of a key, in hex."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def usage_record(rows: Iterable[Usage]) -> None:
    """Write usage rows, in the caller's transaction."""
    Usage.objects.bulk_create(rows)
