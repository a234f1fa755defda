"""Rows of the registry for tests that need no files."""

from typing import Any

from registry.models import Kind, Model, Version, VersionState


def make_version(name: str = "tiny", number: int = 1, *, kind: str = Kind.CHAT, state: str = VersionState.READY,
                 **fields: Any) -> Version:
    model, _ = Model.objects.get_or_create(name=name, defaults={"kind": kind})
    return Version.objects.create(model=model, number=number, state=state, **{"context_length": 256, **fields})
