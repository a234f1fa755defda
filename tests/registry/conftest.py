"""Every test of the registry has a content store of its own."""

from pathlib import Path

import pytest
from pytest_django import Settings


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, settings: Settings) -> None:
    settings.PARLEY_HOME = tmp_path / "home"
    settings.PARLEY_BLOBS = tmp_path / "home" / "blobs"
    settings.PARLEY_STAGING = tmp_path / "home" / "staging"
