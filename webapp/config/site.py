"""What one installation owns on disk before Django starts: its home folder, its secrets and its Valkey's address."""

import os
import secrets
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from webapp.config import env

SOURCE_FOLDER = Path(__file__).resolve().parents[2]


def parley_home() -> Path:
    """Return the folder that holds all state: PARLEY_HOME, else `var` beside the source."""
    return env.folder("PARLEY_HOME", default=SOURCE_FOLDER / "var")


def secret_key(home: Path) -> str:
    """Return the key from PARLEY_SECRET_KEY, else the one that `make up` wrote once. Raises ImproperlyConfigured."""
    if value := env.text("PARLEY_SECRET_KEY"):
        return value
    path = home / "secret_key"
    if not path.exists():
        raise ImproperlyConfigured(f"PARLEY_SECRET_KEY is not set and {path} does not exist; `make up` creates it.")
    return path.read_text().strip()


def embedded_redis_url(home: Path) -> str:
    """Return where the Valkey of `make up` listens, as its last start wrote it down, else Redis's usual address."""
    path = home / "redis_url"
    return path.read_text().strip() if path.exists() else "redis://127.0.0.1:6379/0"


def secret_once(path: Path) -> str:
    """Return the secret in that file; the first call makes it, readable by the owner alone. Raises OSError."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(48))
    return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step with one that only its owner can read. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
    fresh.replace(path)
