"""A model worker as its node sees it: a child process that ends when its standard input is closed."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from registry.deployment_settings import ENGINE_SETTINGS
from registry.models import Deployment

STOP_SECONDS = 12.0


@dataclass(frozen=True)
class LoadSettings:
    """What a model worker was started with; other settings want another worker."""

    engine: tuple[object, ...]
    adapters: tuple[int, ...]

    @classmethod
    def of(cls, deployment: Deployment) -> "LoadSettings":
        adapters = sorted(deployment.adapters.values_list("pk", flat=True))
        return cls(tuple(getattr(deployment, name) for name in ENGINE_SETTINGS), tuple(adapters))


class ModelProcess:
    """One running model worker of one deployment. `on_exit` is called, on another thread, once it has ended."""

    def __init__(self, deployment: Deployment, *, holder: str, on_exit: Callable[[], object]) -> None:
        self.settings = LoadSettings.of(deployment)
        self.name = str(deployment.version)
        self._kill_at: float | None = None
        self._process = subprocess.Popen(
            [sys.executable, str(settings.BASE_DIR / "manage.py"), "run_version", self.name,
             "--deployment", str(deployment.pk), "--holder", holder],
            stdin=subprocess.PIPE, cwd=settings.BASE_DIR, start_new_session=True)
        threading.Thread(target=self._watch, args=[on_exit], name=f"watch-{self.name}", daemon=True).start()

    def _watch(self, on_exit: Callable[[], object]) -> None:
        self._process.wait()
        on_exit()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._kill_at is not None

    def exit_status(self) -> int | None:
        """The exit status once it has ended, negative for a signal; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end, and kill it when it takes too long. Call it again until it has ended; it never blocks."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + STOP_SECONDS
            assert self._process.stdin is not None
            self._process.stdin.close()
        elif time.monotonic() > self._kill_at:
            self._process.kill()

    def stop_and_wait(self) -> None:
        """End it now, within STOP_SECONDS."""
        self.stop()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
