"""Limits: buckets that fill evenly, shared by whoever they are for, with OpenAI's headers and a time to come back."""

import pytest
from django.contrib.auth.models import Group, User

from webapp.accounts.models import Quota
from webapp.accounts.selectors import Limit, limits_for
from webapp.api.errors import ApiError
from webapp.api.limits import limits_spend, limits_take

pytestmark = pytest.mark.usefixtures("clean_redis")


async def test_requests_are_taken_until_the_bucket_is_empty() -> None:
    limits = [Limit("user:1", 2, None)]
    first = await limits_take(limits, tokens=100)
    assert (first["x-ratelimit-limit-requests"], first["x-ratelimit-remaining-requests"]) == ("2", "1")
    await limits_take(limits, tokens=100)
    with pytest.raises(ApiError) as refused:
        await limits_take(limits, tokens=100)
    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    assert 1 <= int(refused.value.headers["retry-after"]) <= 30
    assert refused.value.headers["x-ratelimit-remaining-requests"] == "0"


async def test_a_replys_tokens_are_taken_afterwards_and_may_be_a_debt() -> None:
    limits = [Limit("user:2", None, 60)]
    headers = await limits_take(limits, tokens=10)
    assert headers["x-ratelimit-remaining-tokens"] == "50"
    await limits_spend(limits, tokens=110)
    with pytest.raises(ApiError) as refused:
        await limits_take(limits, tokens=1)
    assert 55 <= int(refused.value.headers["retry-after"]) <= 62  # 60 tokens of debt at one a second, and one more


async def test_a_prompt_above_the_limit_waits_for_a_full_bucket() -> None:
    limits = [Limit("user:3", None, 60)]
    await limits_take(limits, tokens=500)
    with pytest.raises(ApiError):
        await limits_take(limits, tokens=1)


async def test_a_group_shares_and_a_refusal_takes_from_nobody() -> None:
    group = Limit("group:1", 3, None)
    ada, bob = [Limit("user:4", 1, None), group], [group]
    await limits_take(ada, tokens=0)
    with pytest.raises(ApiError):
        await limits_take(ada, tokens=0)
    left = await limits_take(bob, tokens=0)
    assert left["x-ratelimit-remaining-requests"] == "1"


async def test_zero_forbids() -> None:
    with pytest.raises(ApiError) as refused:
        await limits_take([Limit("user:5", 0, None)], tokens=0)
    assert refused.value.status == 403


@pytest.mark.django_db
def test_limits_are_the_persons_own_and_those_of_the_groups() -> None:
    ada, bob = User.objects.create_user("ada"), User.objects.create_user("bob")
    team = Group.objects.create(name="team")
    ada.groups.add(team)
    Quota.objects.create(user=ada, requests_per_minute=5)
    Quota.objects.create(group=team, tokens_per_minute=100)
    assert limits_for(user=ada) == [Limit(f"user:{ada.pk}", 5, None), Limit(f"group:{team.pk}", None, 100)]
    assert limits_for(user=bob) == []


