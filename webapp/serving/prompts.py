"""Prompt builders of the versions that this process was asked about, a few kept: a tokenizer takes a moment to read."""

import threading
from functools import lru_cache
from pathlib import Path

from inference.text.prompt import PromptBuilder
from registry.models import Version
from registry.selectors import version_folder

_reading = threading.Lock()


def prompt_builder(version: Version) -> PromptBuilder:
    """The version's template and tokenizer. A ready version never changes, so its builder never grows old."""
    with _reading:
        return _builder(version.pk, str(version_folder(version)))


@lru_cache(maxsize=8)
def _builder(version_pk: int, folder: str) -> PromptBuilder:
    return PromptBuilder.from_path(Path(folder))
