"""Who calls: the key in `Authorization: Bearer`, and nothing else. Cookies don't count here."""

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja.security import HttpBearer

from webapp.accounts.models import ApiKey, Scope
from webapp.accounts.selectors import Limit, api_key_by_secret, api_key_use_is_stale, limits_for
from webapp.accounts.services import api_key_used, key_digest
from webapp.api.errors import bad_key, missing_scope, overloaded
from webapp.serving.briefly import Briefly
from webapp.serving.database import database_threads, in_database

MOST_DELAY = 3.0  # seconds; when a job for the database waits longer, all would until their clients give up


@dataclass(frozen=True)
class Caller:
    """The person behind a request, the key that was shown, and the limits that apply."""

    user: User
    key: ApiKey
    limits: tuple[Limit, ...]

    @property
    def subject(self) -> str:
        return f"user:{self.user.pk}"


class ApiRequest(HttpRequest):
    """A request whose key was checked."""

    auth: Caller


class KeyAuth(HttpBearer):
    """Takes live keys that have one of the scopes. Raises ApiError with 401 or 403."""

    openapi_name = "ApiKey"

    def __init__(self, *scopes: Scope) -> None:
        super().__init__()
        self._scopes = scopes

    async def __call__(self, request: HttpRequest) -> Caller:
        _require_room()
        kind, _, secret = request.headers.get(self.header, "").partition(" ")
        if kind.lower() != self.openapi_scheme or not secret:
            raise bad_key()
        return await self.authenticate(request, secret.strip())

    async def authenticate(self, request: HttpRequest, token: str) -> Caller:
        digest = key_digest(token)
        caller = _callers.peek(digest) or await in_database(_callers.get, digest, lambda: _caller(token))
        if caller is None:
            raise bad_key()
        if self._scopes and not set(self._scopes) & set(caller.key.scopes):
            raise missing_scope(self._scopes[0])
        return caller


def _require_room() -> None:
    """Refuse while more requests wait for the database than it can answer soon. Raises ApiError with 503."""
    if database_threads.waiting > settings.PARLEY_QUEUE_LIMIT or database_threads.delay > MOST_DELAY:
        raise overloaded("Too many requests arrive at once. Try again in a moment.", retry_after=1)


_callers: Briefly[Caller | None] = Briefly()


def _caller(secret: str) -> Caller | None:
    key = api_key_by_secret(secret)
    if key is None:
        return None
    if api_key_use_is_stale(key):
        api_key_used(key=key)
    return Caller(key.owner, key, tuple(limits_for(user=key.owner)))


any_key = KeyAuth()
chat_key = KeyAuth(Scope.CHAT)
embed_key = KeyAuth(Scope.EMBED)
