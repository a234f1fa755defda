"""Reads single values out of an untrusted configuration, each checked, with the file and the key in every refusal."""

import math
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from inference.artifacts.errors import ArtifactError

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class ConfigReader:
    """A configuration and how to read it. A missing or null value takes the default; every method may raise
    ArtifactError.

    values: what config.json holds. file: its name in errors. generation: what generation_config.json holds.
    """

    values: dict[str, Any]
    file: str = "config.json"
    generation: dict[str, Any] = field(default_factory=dict)

    def refuse(self, message: str) -> NoReturn:
        raise ArtifactError(self.file, message)

    def section(self, values: Any, what: str) -> "ConfigReader":
        """Return a reader of an object inside the configuration."""
        if not isinstance(values, dict):
            self.refuse(f"{what} is not an object")
        return ConfigReader(values, self.file, self.generation)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def whole(self, key: str, default: int | None = None, *, limit: int = 2**31 - 1, least: int = 1) -> int:
        value = self.get(key, default)
        if value is None:
            self.refuse(f"{key} is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= limit:
            self.refuse(f"{key} is {str(value)[:40]!r}, not a whole number from {least} to {limit:,}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if value is None:
            self.refuse(f"{key} is missing")
        if not _is_number(value) or value <= 0:
            self.refuse(f"{key} is {str(value)[:40]!r}, not a positive number")
        return float(value)

    def optional_positive(self, key: str) -> float | None:
        return None if self.get(key) is None else self.positive(key)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            self.refuse(f"{key} is {str(value)[:40]!r}, not true or false")
        return value

    def choice(self, key: str, choices: dict[str, Choice], default: str) -> Choice:
        """Return what the value stands for among the choices."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in choices:
            known = ", ".join(repr(name) for name in choices)
            self.refuse(f"{key} is {str(value)[:40]!r}; only {known} can be run")
        return choices[value]

    def positives(self, key: str, count: int) -> tuple[float, ...]:
        """Return a list of so many positive numbers."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) != count or not all(_is_number(x) and x > 0 for x in value):
            self.refuse(f"{key} is not a list of {count} positive numbers")
        return tuple(float(x) for x in value)

    def words(self, key: str, count: int, allowed: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return a list of so many of the allowed words, or None when there is none."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count or not all(word in allowed for word in value):
            self.refuse(f"{key} is not a list of {count} out of {', '.join(allowed)}")
        return tuple(value)

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """Return the ids under key, from generation_config when it has them; one id or a list of them is allowed."""
        value, file = self.generation.get(key), "generation_config.json"
        if value is None:
            value, file = self.values.get(key), self.file
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
                raise ArtifactError(file, f"{key} is {str(token_id)[:40]!r}, not a token id under {vocab_size:,}")
        return tuple(dict.fromkeys(ids))


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
