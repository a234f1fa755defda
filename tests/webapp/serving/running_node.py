"""A real node worker for tests: the processes that `manage.py run_node` starts, found, killed and ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psutil
from django.conf import settings
from django.db import connection

from registry.loads import version_load
from registry.models import Version

LOAD_SECONDS = 300.0  # the first load of a new machine compiles the kernels


def test_database_url() -> str:
    """The URL of the database that this test uses, for another process."""
    row = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{row['NAME']}"
    host, port = quote(row["HOST"] or "", safe=""), f":{row['PORT']}" if row["PORT"] else ""
    return f"postgres://{quote(row['USER'])}:{quote(row['PASSWORD'])}@{host}{port}/{row['NAME']}"


test_database_url.__test__ = False  # type: ignore[attr-defined]  # a name, not a test


class RunningNode:
    """One node worker on the test's database. `redis_url` may lead to another Valkey than the test's own."""

    def __init__(self, *, redis_url: str, log: Path, **environment: str) -> None:
        self._env = {**os.environ, "DATABASE_URL": test_database_url(), "REDIS_URL": redis_url,
                     "PARLEY_NODE": "tests", "PARLEY_LOG_LEVEL": "INFO", **environment}
        self._log = log
        self._seen: set[psutil.Process] = set()
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "manage.py", "run_node"], cwd=settings.BASE_DIR,
                                             env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def model_worker_pid(self) -> int:
        return self._child_of(self.pid, "run_version")

    def engine_pid(self) -> int:
        return self._child_of(self.model_worker_pid(), "inference.server")

    def children_named(self, word: str) -> list[psutil.Process]:
        """The node worker's own children with this word in their command line."""
        return [child for child in psutil.Process(self.pid).children() if word in _command(child)]

    def _child_of(self, pid: int, word: str) -> int:
        children = psutil.Process(pid).children()
        self._seen.update(children)
        return next(child.pid for child in children if word in _command(child))

    def kill(self, victim: str) -> None:
        """SIGKILL one of `engine`, `model worker` and `node worker`; a node worker is started again, as `up` does."""
        pids = {"engine": self.engine_pid, "model worker": self.model_worker_pid, "node worker": lambda: self.pid}
        self._child_of(self.model_worker_pid(), "inference.server")
        os.kill(pids[victim](), signal.SIGKILL)
        if victim == "node worker":
            self._process.wait()
            self.start()

    def kill_alone(self) -> None:
        """SIGKILL the node worker, which holds no model, and start another, as `up` does."""
        self._process.kill()
        self._process.wait()
        self.start()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def left_over(self) -> list[psutil.Process]:
        """Processes below any node worker of this test that still run."""
        return [process for process in self._seen if process.is_running() and process.status() != "zombie"]

    def left_over_old(self) -> list[psutil.Process]:
        """Of those, the ones that are not below the node worker that runs now."""
        current = set(psutil.Process(self.pid).children(recursive=True))
        return [process for process in self.left_over() if process not in current]

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")


def _command(process: psutil.Process) -> str:
    """The process's command line, empty once it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def wait_for(condition: Callable[[], object], *, seconds: float, what: str, every: float = 0.05) -> float:
    """Wait until the condition holds; returns how long that took. Fails with `what` when it doesn't."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds:g} s"
        time.sleep(every)
    return time.monotonic() - began


def wait_loaded(version: Version) -> float:
    """Wait until the version is loaded; returns how long that took."""
    return wait_for(lambda: version_load(version).state == "loaded", seconds=LOAD_SECONDS, what=f"{version} is loaded")
