"""A whole site with its real processes, started by the code that `make up` runs, in a home folder of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from django.db import connections
from pytest_django import DjangoDbBlocker

from webapp.config.database import database_from_url
from webapp.ops.logs import last_lines
from webapp.ops.processes import free_port, wait_until

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 300
STOP_SECONDS = 60
DATABASE = "live"


class LiveSite:
    """`url` ends with a slash; sign in as `username` with `password`. `output` is what `up` wrote to its terminal.
    database_url: of a PostgreSQL, or empty for SQLite in `home`.

    The process ids are looked up anew each time, since parts are restarted; they raise LookupError while there is none.
    """

    username = "admin"
    password = "correct horse battery"

    def __init__(self, *, home: Path, mode: str, db_blocker: DjangoDbBlocker, database_url: str = "") -> None:
        self.home, self.mode, self.database_url, self._db_blocker = home, mode, database_url, db_blocker
        self.port, self.valkey_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._output = home / "output"
        self._output.touch()
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with open(self._output, "ab") as output:
            process = subprocess.Popen([sys.executable, "-m", "webapp.ops.up"], cwd=ROOT, env=self._env, stdout=output,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        ready = wait_until(lambda: "\nLogs: " in self.output or process.poll() is not None, seconds=START_SECONDS)
        if not ready or process.poll() is not None or ": loaded." not in self.output:
            process.terminate()
            raise RuntimeError(f"The site did not start:\n{self.output}\n{self.log('node', 30)}")
        return process

    @property
    def _env(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items()
               if name not in ("REDIS_URL", "DATABASE_URL", "PARLEY_SECRET_KEY", "PARLEY_LOG_LEVEL")}
        database = {"DATABASE_URL": self.database_url} if self.database_url else {}
        return env | database | {
            "PARLEY_HOME": str(self.home), "PARLEY_PORT": str(self.port), "PARLEY_NODE": f"live-{self.port}",
            "PARLEY_VALKEY_PORT": str(self.valkey_port), "PARLEY_ADMIN_PASSWORD": self.password,
            "PARLEY_DEMO_MODE": self.mode}

    def manage(self, *arguments: str) -> str:
        """Run `manage.py` on the site and return what it printed."""
        return subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=self._env, check=True,
                              capture_output=True, text=True).stdout.strip()

    @property
    def output(self) -> str:
        return self._output.read_text()

    def log(self, part: str, lines: int = 20) -> str:
        """The last lines of a part's log: valkey, node or web."""
        return "\n".join(last_lines(self.home / "log" / f"{part}.log", lines))

    @property
    def web_pid(self) -> int:
        return self._pid("daphne")

    @property
    def valkey_pid(self) -> int:
        return self._pid("valkey-server")

    @property
    def node_pid(self) -> int:
        return self._pid("run_node")

    @property
    def model_worker_pid(self) -> int:
        return self._pid("run_version")

    @property
    def engine_pid(self) -> int:
        return self._pid("inference.server")

    def _pid(self, word: str) -> int:
        for process in self.processes():
            with suppress(psutil.Error):
                if any(word in argument for argument in process.cmdline()[:4]):
                    return process.pid
        raise LookupError(f"no process of {word} is running")

    def processes(self) -> list[psutil.Process]:
        """Every live process of this site, orphans included: known by its environment, Valkey by its title's port."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ours = process.environ().get("PARLEY_HOME") == str(self.home) and process.pid != os.getpid()
                if ours or f"127.0.0.1:{self.valkey_port}" in " ".join(process.cmdline()):
                    found.append(process)
        return found

    @contextmanager
    def database(self) -> Iterator[str]:
        """Open the site's own database and yield its alias: `Generation.objects.using(alias)`."""
        connections.settings[DATABASE] = connections.configure_settings(
            {"default": database_from_url(self.database_url, sqlite_file=self.home / "parley.sqlite3")})["default"]
        with self._db_blocker.unblock():
            try:
                yield DATABASE
            finally:
                connections[DATABASE].close()
                del connections[DATABASE]
                del connections.settings[DATABASE]

    def web_connections(self) -> int:
        """How many connections to the database the web process holds open."""
        web = psutil.Process(self.web_pid)
        if port := urlsplit(self.database_url).port:
            return sum(bool(row.raddr) and row.raddr.port == port for row in web.net_connections())
        return sum(file.path.endswith("parley.sqlite3") for file in web.open_files())

    def stop(self) -> list[str]:
        """End the site as Ctrl-C does and return the command lines of the processes that are left (none)."""
        self.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=STOP_SECONDS)
        left = self.processes()
        words = [" ".join(process.cmdline()) for process in left]
        for process in left:
            process.kill()
        self.process.wait()
        return words
