"""The service that takes a model in at once, for the command line: copy and hash, verify, publish."""

from pathlib import Path

from registry.access import Viewer
from registry.errors import ImportRefused
from registry.intake import Intake, Watcher, take_in
from registry.models import Version
from registry.staging import Progress, stage

__all__ = ["ImportRefused", "version_import"]


def version_import(
    *, path: Path, name: str, kind: str | None = None, parent: Version | None = None, by: Viewer | None = None,
    publish: bool = True, on_progress: Progress | None = None
) -> Version:
    """Import a folder with safetensors, or a .gguf file, as the next version of the model called name.

    The same content under the same name gives the version that is there already. kind: chat, embedding, rerank or
    adapter; None goes by the model's own files. on_progress: called with phase, bytes done, bytes in all.
    Return the ready version. Raises ImportRefused: nothing of the model stays on disk then, and a version that was
    refused by verification stays listed as rejected, with the reason.
    """
    intake = Intake(name=name, kind=kind or "", source=str(path), by=by, parent=parent, publish=publish)
    return take_in(intake, lambda folder, progress: stage(path.resolve(), folder, progress),
                   _ProgressWatcher(on_progress)).version


class _ProgressWatcher(Watcher):
    def __init__(self, on_progress: Progress | None) -> None:
        self._on_progress = on_progress

    def progress(self, phase: str, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(phase, done, total)
