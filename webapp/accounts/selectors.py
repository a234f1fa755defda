"""Reads of the accounts app: the key behind a secret, a person's keys, limits and usage."""

from dataclasses import dataclass
from datetime import date, timedelta

from django.contrib.auth.models import User
from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import Now, TruncDate
from django.utils import timezone

from webapp.accounts.models import ApiKey, Quota, Usage
from webapp.accounts.services import KEY_START, USED_EVERY, key_digest

MAX_SECRET_CHARS = 200
USAGE_DAYS = 30


def api_key_by_secret(secret: str) -> ApiKey | None:
    """The live key that this secret is, with its owner; None for an unknown or revoked one, or of a disabled person."""
    if not secret.startswith(KEY_START) or len(secret) > MAX_SECRET_CHARS:
        return None
    return ApiKey.objects.select_related("owner").filter(
        digest=key_digest(secret), revoked_at=None, owner__is_active=True).first()


def api_key_use_is_stale(key: ApiKey) -> bool:
    """Whether "last used" wants to be written again."""
    return key.last_used_at is None or timezone.now() - key.last_used_at > USED_EVERY


def api_keys_for(*, viewer: User) -> QuerySet[ApiKey]:
    """The viewer's own keys, live ones first, then newest first."""
    return ApiKey.objects.filter(owner=viewer).order_by(F("revoked_at").asc(nulls_first=True), "-created_at")


def api_key_for(*, viewer: User, pk: int) -> ApiKey:
    """One of the viewer's own keys. Raises ApiKey.DoesNotExist, for a foreign one as for a missing one."""
    return ApiKey.objects.get(owner=viewer, pk=pk)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit that applies to somebody. subject: whose counter it is, such as `user:3` or `group:1`."""

    subject: str
    requests_per_minute: int | None
    tokens_per_minute: int | None


def limits_for(*, user: User) -> list[Limit]:
    """Every limit that applies to a person: the own one, and those shared with a group's other members."""
    rows = Quota.objects.filter(Q(user=user) | Q(group__user=user)).order_by("pk").distinct()
    return [Limit(f"user:{row.user_id}" if row.user_id else f"group:{row.group_id}", row.requests_per_minute,
                  row.tokens_per_minute) for row in rows]


@dataclass(frozen=True)
class UsageDay:
    """What one person used of one model on one day (UTC)."""

    day: date
    model: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


def usage_by_day(*, viewer: User, days: int = USAGE_DAYS) -> list[UsageDay]:
    """The viewer's own usage of the last days, by day and model, latest first."""
    rows = Usage.objects.filter(user=viewer, created_at__gte=Now() - timedelta(days=days)).order_by()
    found = rows.annotate(day=TruncDate("created_at")).values("day", "model").annotate(
        requests=Count("pk"), prompt=Sum("prompt_tokens"), cached=Sum("cached_tokens"), output=Sum("output_tokens"))
    return [UsageDay(row["day"], row["model"], row["requests"], row["prompt"], row["cached"], row["output"])
            for row in found.order_by("-day", "model")]


def usage_latest(*, viewer: User, count: int = 50) -> list[Usage]:
    """The viewer's own latest requests."""
    return list(Usage.objects.filter(user=viewer).select_related("api_key")[:count])
