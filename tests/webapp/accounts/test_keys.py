"""API keys: made once, shown once, stored as a hash, used with their scopes, revoked for good, and one's own only."""

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from webapp.accounts.models import ApiKey, Usage
from webapp.accounts.selectors import api_key_by_secret, usage_by_day
from webapp.accounts.services import KeyRefused, api_key_create, api_key_revoke, api_key_used

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def bob() -> User:
    return User.objects.create_user("bob")


def test_a_key_opens_until_it_is_revoked_and_its_secret_is_nowhere(ada: User) -> None:
    made = api_key_create(owner=ada, name="report", scopes=["chat"])
    assert made.secret.startswith("sk-parley-") and len(made.secret) > 50
    row = ApiKey.objects.values().get()
    assert made.secret not in str(row) and made.secret.startswith(row["start"])
    assert api_key_by_secret(made.secret) == made.key
    assert api_key_by_secret(made.secret[:-1]) is None
    api_key_revoke(key=made.key)
    assert api_key_by_secret(made.secret) is None


def test_a_disabled_person_has_no_keys(ada: User) -> None:
    made = api_key_create(owner=ada, name="report", scopes=["chat"])
    ada.is_active = False
    ada.save()
    assert api_key_by_secret(made.secret) is None


@pytest.mark.parametrize(("name", "scopes", "field"), [
    ("", ["chat"], "name"), ("x" * 65, ["chat"], "name"), ("x", [], "scopes"), ("x", ["root"], "scopes"),
    ("x", ["admin"], "scopes")])
def test_what_makes_no_key_is_refused_by_field(ada: User, name: str, scopes: list[str], field: str) -> None:
    with pytest.raises(KeyRefused) as refusal:
        api_key_create(owner=ada, name=name, scopes=scopes)
    assert refusal.value.field == field


def test_last_use_is_noted_at_most_once_a_minute(ada: User) -> None:
    key = api_key_create(owner=ada, name="report", scopes=["chat"]).key
    api_key_used(key=key)
    first = ApiKey.objects.get().last_used_at
    api_key_used(key=key)
    assert first is not None and ApiKey.objects.get().last_used_at == first


def test_the_command_prints_a_key_and_nothing_else(ada: User) -> None:
    out = StringIO()
    call_command("create_api_key", "ada", "--name", "cron", stdout=out)
    key = api_key_by_secret(out.getvalue().strip())
    assert key is not None and (key.name, key.scopes) == ("cron", ["chat", "embed"])
    with pytest.raises(CommandError, match="nobody called"):
        call_command("create_api_key", "eve")


def test_the_page_shows_a_new_key_once(client: Client, ada: User) -> None:
    client.force_login(ada)
    shown = client.post("/accounts/keys/", {"name": "report", "scopes": ["chat"]})
    key = ApiKey.objects.get()
    assert key.start in shown.content.decode()
    assert shown.context["made"].secret in shown.content.decode()
    again = client.get("/accounts/keys/")
    assert shown.context["made"].secret not in again.content.decode() and "report" in again.content.decode()
    assert "no-store" in again["cache-control"]


def test_the_page_refuses_what_the_service_refuses(client: Client, ada: User) -> None:
    client.force_login(ada)
    answer = client.post("/accounts/keys/", {"name": "", "scopes": ["admin"]})
    assert answer.status_code == 400 and not ApiKey.objects.exists()


def test_one_persons_keys_and_usage_are_nobody_elses(client: Client, ada: User, bob: User) -> None:
    made = api_key_create(owner=ada, name="adas secret name", scopes=["chat"])
    Usage.objects.create(user=ada, model="smollm2:1", endpoint="chat.completions", prompt_tokens=7)
    client.force_login(bob)
    assert "adas secret name" not in client.get("/accounts/keys/").content.decode()
    assert "smollm2:1" not in client.get("/accounts/usage/").content.decode()
    for verb in (client.get, client.post, client.put, client.delete, client.patch):
        answer = verb(f"/accounts/keys/{made.key.pk}/revoke/")
        missing = verb("/accounts/keys/999999/revoke/")
        assert answer.status_code == missing.status_code in (404, 405)
    assert api_key_by_secret(made.secret) is not None
    assert usage_by_day(viewer=bob) == [] and usage_by_day(viewer=ada)[0].prompt_tokens == 7
    client.force_login(ada)
    assert client.post(f"/accounts/keys/{made.key.pk}/revoke/").status_code == 302
    assert api_key_by_secret(made.secret) is None


def test_the_pages_want_somebody_signed_in(client: Client) -> None:
    for path in ("/accounts/keys/", "/accounts/usage/", "/api/", "/api/reference/"):
        assert client.get(path)["location"].startswith("/accounts/login/")


def test_the_examples_name_the_readers_host(client: Client, ada: User) -> None:
    client.force_login(ada)
    page = client.get("/api/", headers={"host": "localhost:1234"}).content.decode()
    assert "http://localhost:1234/v1/chat/completions" in page
    reference = client.get("/api/reference/")
    assert "data:" in reference["content-security-policy"] and "//cdn" not in reference.content.decode()


def test_every_page_carries_a_request_id(client: Client) -> None:
    assert client.get("/healthz", headers={"x-request-id": "abc-1"})["x-request-id"] == "abc-1"
    assert client.get("/healthz", headers={"x-request-id": "no good\n"})["x-request-id"].startswith("req-")
