"""Reads numbers out of an untrusted config.json: each is checked, and an error names its key."""

from collections.abc import Mapping
from typing import Any

from inference.spec import SpecError

LARGEST = 2**31 - 1
MOST_LAYERS = 10_000

MISSING = object()


class ConfigValues:
    """A configuration by key, where families spell a key in several ways. Raises SpecError for impossible values."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def get(self, *keys: str) -> Any:
        """Return the first of these keys' values that is there and not null, else None."""
        return next((self.config[key] for key in keys if self.config.get(key) is not None), None)

    def whole(self, *keys: str, default: Any = MISSING, least: int = 1, most: int = LARGEST) -> int:
        """Return a whole number from least to most. Without a default the key must be there."""
        value = self.get(*keys)
        if value is None:
            if default is MISSING:
                raise SpecError(keys[0], "is missing from the configuration")
            return int(default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise SpecError(keys[0], f"is {str(value)[:40]!r}, not a whole number from {least:,} to {most:,}")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        value = self.get(*keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise SpecError(keys[0], f"is {str(value)[:40]!r}, not true or false")
        return value

    def text(self, *keys: str, default: str = "") -> str:
        value = self.get(*keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise SpecError(keys[0], f"is {str(value)[:40]!r}, not a text")
        return value

    def texts(self, *keys: str, length: int) -> tuple[str, ...]:
        """Return a list of that many texts, or an empty one when the key isn't there."""
        value = self.get(*keys)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) < length:
            raise SpecError(keys[0], f"is not a list of {length:,} texts")
        return tuple(value[:length])

    def numbers(self, *keys: str) -> tuple[int, ...]:
        """Return a list of whole numbers, or an empty one when the key isn't there."""
        value = self.get(*keys)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(item) is int and 0 <= item <= LARGEST for item in value):
            raise SpecError(keys[0], "is not a list of whole numbers")
        return tuple(value)

    def section(self, key: str) -> Mapping[str, Any]:
        value = self.config.get(key)
        return value if isinstance(value, Mapping) else {}
