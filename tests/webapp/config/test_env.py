"""Environment variables: good values are read, bad ones are refused by name."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.config import env
from webapp.config.database import database_from_url


def test_a_variable_that_is_empty_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PORT", " ")
    assert env.port("PARLEY_PORT", default=8000) == 8000


@pytest.mark.parametrize("value", ["abc", "0", "65536", "-1", "8000.5", "٨٠", "1e3"])
def test_a_port_is_a_whole_number_in_range(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PARLEY_PORT", value)
    with pytest.raises(ImproperlyConfigured, match="PARLEY_PORT"):
        env.port("PARLEY_PORT", default=8000)


@pytest.mark.parametrize(("value", "meaning"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)])
def test_a_flag_takes_the_usual_words(monkeypatch: pytest.MonkeyPatch, value: str, meaning: bool) -> None:
    monkeypatch.setenv("PARLEY_DEBUG", value)
    assert env.flag("PARLEY_DEBUG", default=not meaning) is meaning


def test_a_flag_refuses_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_DEBUG", "maybe")
    with pytest.raises(ImproperlyConfigured, match="PARLEY_DEBUG"):
        env.flag("PARLEY_DEBUG", default=False)


def test_a_choice_ignores_case_and_names_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_LOG_LEVEL", "warning")
    assert env.choice("PARLEY_LOG_LEVEL", among=("INFO", "WARNING"), default="INFO") == "WARNING"
    monkeypatch.setenv("PARLEY_LOG_LEVEL", "loud")
    with pytest.raises(ImproperlyConfigured, match="PARLEY_LOG_LEVEL must be one of INFO, WARNING"):
        env.choice("PARLEY_LOG_LEVEL", among=("INFO", "WARNING"), default="INFO")


@pytest.mark.parametrize("value", ["foo", "http://host", "redis://", "redis://host:port", "redis://[::1", "redis://h:0"])
def test_a_bad_address_is_refused_without_repeating_it(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("REDIS_URL", value)
    with pytest.raises(ImproperlyConfigured) as refusal:
        env.url("REDIS_URL", schemes=("redis", "rediss"))
    assert "REDIS_URL must be an address that begins with redis:// or rediss://." in str(refusal.value)


def test_words_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_ALLOWED_HOSTS", "a.example, b.example,")
    assert env.words("PARLEY_ALLOWED_HOSTS", default=["localhost"]) == ["a.example", "b.example"]


def test_sqlite_is_the_database_when_none_is_named(tmp_path: Path) -> None:
    database = database_from_url("", sqlite_file=tmp_path / "a b%20.sqlite3")
    assert database["NAME"] == str(tmp_path / "a b%20.sqlite3")
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_a_postgres_address_is_read(tmp_path: Path) -> None:
    database = database_from_url("postgres://u:p%40ss@db.example:5433/parley", sqlite_file=tmp_path / "x")
    assert database["ENGINE"] == "django.db.backends.postgresql"
    found = (database["USER"], database["PASSWORD"], database["HOST"], database["PORT"], database["NAME"])
    assert found == ("u", "p@ss", "db.example", 5433, "parley")


@pytest.mark.parametrize("url", ["foo", "mysql://u:p@h/x", "postgres://u:p@h:port/x", "postgres://u:p@h"])
def test_a_bad_database_address_is_refused_by_name(tmp_path: Path, url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL"):
        database_from_url(url, sqlite_file=tmp_path / "x")
