"""Django's database settings from DATABASE_URL: PostgreSQL, or SQLite set up for many writing threads."""

from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from environ import Env

SCHEMES = ("postgres", "postgresql", "sqlite")
WORDS = "DATABASE_URL must look like postgres://user:password@host:5432/name or sqlite:////folder/file.sqlite3."


def database_from_url(url: str, *, sqlite_file: Path) -> dict[str, Any]:
    """Return the entry for DATABASES; an empty `url` means SQLite in that file. Raises ImproperlyConfigured."""
    database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(sqlite_file)}
    if url:
        if url.partition("://")[0] not in SCHEMES:
            raise ImproperlyConfigured(WORDS)
        try:
            database = Env.db_url_config(url)
        except (ValueError, KeyError) as error:
            raise ImproperlyConfigured(WORDS) from error
        if not database.get("NAME"):
            raise ImproperlyConfigured(WORDS)
    if database["ENGINE"] == "django.db.backends.sqlite3":
        database["OPTIONS"] = sqlite_options()
    return database


def sqlite_options() -> dict[str, Any]:
    """Without IMMEDIATE, a transaction that turns into a writer fails with "database is locked" instead of waiting."""
    return {
        "timeout": 5,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
    }
