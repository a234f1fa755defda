"""The health endpoints: no sign-in, and the truth about the parts behind the site."""

import pytest
from django.conf import LazySettings
from django.core.checks import run_checks
from django.test import Client

from webapp.ops.processes import free_port


def test_healthz_answers_without_database(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


@pytest.mark.django_db
def test_readyz_says_that_all_parts_answer(client: Client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"database": "ok", "redis": "ok"}
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.django_db
def test_readyz_names_the_part_that_does_not_answer(client: Client, settings: LazySettings) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"database": "ok", "redis": "does not answer"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_only_read(client: Client, path: str) -> None:
    assert client.post(path).status_code == 405


def test_serving_other_hosts_without_https_is_warned_of(settings: LazySettings) -> None:
    settings.ALLOWED_HOSTS = ["localhost", "chat.example"]
    [warning] = [message for message in run_checks() if message.id == "parley.W001"]
    assert "chat.example" in warning.msg
    settings.PARLEY_HTTPS = True
    assert not [message for message in run_checks() if message.id == "parley.W001"]


def test_the_icon_is_found_where_browsers_look_for_it(client: Client) -> None:
    answer = client.get("/favicon.ico")
    assert (answer.status_code, answer["Location"].endswith(".svg")) == (302, True)
