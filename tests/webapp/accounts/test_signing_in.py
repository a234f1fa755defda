"""Signing in and out: who gets in, where they are led, and what stays shut."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.django_db

PASSWORD = "a long pass phrase"


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password=PASSWORD)


def sign_in(client: Client, *, password: str = PASSWORD, following: str = "") -> Any:
    return client.post(f"/accounts/login/?next={following}", {"username": "ada", "password": password})


def signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_the_right_password_leads_home(client: Client, ada: User) -> None:
    response = sign_in(client)
    assert response.headers["Location"] == "/"
    assert signed_in(client)


def test_the_page_that_was_asked_for_comes_next(client: Client, ada: User) -> None:
    assert client.get("/").headers["Location"] == "/accounts/login/?next=/"
    assert sign_in(client, following="/models/").headers["Location"] == "/models/"


@pytest.mark.parametrize("address", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "\\\\evil"])
def test_no_other_site_comes_next(client: Client, ada: User, address: str) -> None:
    assert sign_in(client, following=address).headers["Location"] == "/"


def test_a_wrong_password_is_refused_on_the_page(client: Client, ada: User) -> None:
    response = sign_in(client, password="guess")
    assert response.status_code == 200
    assert response.context["form"].errors
    assert not signed_in(client)


def test_an_inactive_user_is_refused_like_a_wrong_password(client: Client, ada: User) -> None:
    wrong = sign_in(client, password="guess").context["form"].errors
    User.objects.update(is_active=False)
    assert sign_in(client).context["form"].errors == wrong
    assert not signed_in(client)


def test_a_user_who_is_made_inactive_is_out_at_once(client: Client, ada: User) -> None:
    sign_in(client)
    User.objects.update(is_active=False)
    assert client.get("/models/").status_code == 401


def test_who_is_signed_in_need_not_again(client: Client, ada: User) -> None:
    client.force_login(ada)
    assert client.get("/accounts/login/").headers["Location"] == "/"


def test_signing_out_is_a_post_and_ends_the_session(client: Client, ada: User) -> None:
    client.force_login(ada)
    assert client.get("/accounts/logout/").status_code == 405
    assert signed_in(client)
    assert client.post("/accounts/logout/").headers["Location"] == "/accounts/login/"
    assert not signed_in(client)


def test_the_forms_want_a_csrf_token(ada: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    assert sign_in(strict).status_code == 403
    strict.force_login(ada)
    assert strict.post("/accounts/logout/").status_code == 403
