"""Reading environment variables: each value is checked, and a bad one stops start-up with the variable's name.

A variable that is set but empty counts as not set. Every function raises ImproperlyConfigured, and none repeats the
value of a variable that may hold a password.
"""

import os
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

YES = {"1", "true", "yes", "on"}
NO = {"0", "false", "no", "off"}


def text(name: str, *, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def words(name: str, *, default: list[str]) -> list[str]:
    """Return the parts of a comma-separated value."""
    return [part.strip() for part in text(name).split(",") if part.strip()] or default


def choice(name: str, *, among: tuple[str, ...], default: str) -> str:
    """Return the one of these words that the variable names, in their spelling; case doesn't matter."""
    value = text(name, default=default)
    for word in (*among, default):
        if word.lower() == value.lower():
            return word
    raise ImproperlyConfigured(f"{name} must be one of {', '.join(among)}, not {value!r}.")


def flag(name: str, *, default: bool) -> bool:
    value = text(name).lower()
    if value and value not in YES | NO:
        raise ImproperlyConfigured(f"{name} must be yes or no (1, 0, true, false), not {value!r}.")
    return value in YES if value else default


def whole_number(name: str, *, default: int, low: int, high: int) -> int:
    value = text(name, default=str(default))
    if not (value.isascii() and value.isdecimal() and low <= int(value) <= high):
        raise ImproperlyConfigured(f"{name} must be a whole number from {low} to {high}, not {value!r}.")
    return int(value)


def port(name: str, *, default: int) -> int:
    return whole_number(name, default=default, low=1, high=65535)


def folder(name: str, *, default: Path) -> Path:
    path = Path(text(name, default=str(default))).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ImproperlyConfigured(f"{name} must be a folder; {path} is a file.")
    return path


def folders(name: str) -> list[Path]:
    """Return the folders of a comma-separated value, links resolved; each must be there."""
    found = [Path(word).expanduser().resolve() for word in words(name, default=[])]
    for path in found:
        if not path.is_dir():
            raise ImproperlyConfigured(f"{name}: there is no folder {path}.")
    return found


def url(name: str, *, schemes: tuple[str, ...], default: str = "") -> str:
    """Return a URL of one of these schemes, or the default when the variable is not set."""
    value = text(name)
    if not value:
        return default
    try:
        parts = urlsplit(value)
        usable = parts.scheme in schemes and bool(parts.netloc or parts.path) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that don't close
        usable = False
    if not usable:
        beginnings = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ImproperlyConfigured(f"{name} must be an address that begins with {beginnings}.")
    return value
