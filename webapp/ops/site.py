"""One installation as `up` runs it: its settings from the environment, its home folder and its processes."""

import fcntl
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from webapp.config import env
from webapp.config.site import SOURCE_FOLDER, parley_home, secret_once, write_private
from webapp.ops.processes import free_port, port_is_free
from webapp.ops.supervisor import Part
from webapp.ops.valkey import valkey_answers, valkey_command, valkey_url

MAX_WEBSOCKET_BYTES = 1024 * 1024
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class CannotStart(RuntimeError):
    """The site can't be started here; str() is one sentence that says why and what helps."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the environment says. `valkey_port` is None when Valkey runs elsewhere (REDIS_URL)."""

    home: Path
    bind: str
    port: int
    valkey_port: int | None

    @classmethod
    def from_environment(cls) -> "Site":
        """Read and check the variables. Raises ImproperlyConfigured with the variable's name."""
        port = env.port("PARLEY_PORT", default=8000)
        external = env.url("REDIS_URL", schemes=("redis", "rediss"))
        wished = env.text("PARLEY_VALKEY_PORT") and env.port("PARLEY_VALKEY_PORT", default=1)
        return cls(home=parley_home(), bind=env.text("PARLEY_BIND", default="127.0.0.1"), port=port,
                   valkey_port=None if external else wished or _usual_or_free(min(port + 1, 65535)))

    @property
    def url(self) -> str:
        host = ANY_ADDRESS.get(self.bind, self.bind)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def logs(self) -> Path:
        return self.home / "log"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the home folder and hold it, so that a second `up` on it refuses. Raises CannotStart."""
        with ExitStack() as stack:
            with self._writing():
                self.home.mkdir(mode=0o700, parents=True, exist_ok=True)  # conversations are nobody else's business
                self.logs.mkdir(exist_ok=True)
                lock = stack.enter_context(open(self.home / "up.lock", "a+"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                raise CannotStart(f"Parley already runs on {self.home} (process {lock.read().strip() or '?'}). Stop it "
                                  "first, or set PARLEY_HOME and PARLEY_PORT for a second one.") from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def write_secrets(self) -> None:
        """Make the secrets that aren't there yet, and note where Valkey will listen. Raises CannotStart."""
        with self._writing():
            secret_once(self.home / "secret_key")
            if self.valkey_port is not None:
                write_private(self.home / "redis_url", valkey_url(port=self.valkey_port, password=self.valkey_password))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CannotStart(f"PARLEY_HOME: {self.home} can't be written ({error.strerror}). Make it writable for "
                              "this user, or set PARLEY_HOME to another folder.") from error

    def check_ports(self) -> None:
        """Raises CannotStart when a port is taken or the address isn't this machine's."""
        try:
            taken = not port_is_free(self.bind, self.port)
        except OSError as error:
            raise CannotStart(f"PARLEY_BIND, PARLEY_PORT: can't listen on {self.bind} port {self.port} "
                              f"({error.strerror or error}).") from error
        if taken:
            raise CannotStart(f"Port {self.port} on {self.bind} is taken by another program. Set PARLEY_PORT to a "
                              "free one.")
        if self.valkey_port is not None and not port_is_free("127.0.0.1", self.valkey_port):
            raise CannotStart(f"Port {self.valkey_port} on 127.0.0.1 is taken by another program. Set "
                              "PARLEY_VALKEY_PORT to a free one.")

    def child_environment(self) -> dict[str, str]:
        """The variables of every process of the site; secrets stay in files."""
        return os.environ | {
            "PARLEY_HOME": str(self.home),
            "DJANGO_SETTINGS_MODULE": "webapp.config.settings",
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(self.home / "cache" / "numba")),
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def valkey_password(self) -> str:
        return secret_once(self.home / "valkey_password")

    def valkey(self) -> Part | None:
        """The embedded server, or None when REDIS_URL names another. Raises OSError."""
        if self.valkey_port is None:
            return None
        port, password = self.valkey_port, self.valkey_password
        return Part(name="valkey", command=valkey_command(folder=self.home / "valkey", port=port, password=password),
                    ready=lambda: valkey_answers(port=port, password=password))

    def node(self) -> Part:
        """The node worker, which holds the model workers and their engines."""
        return Part(name="node", command=manage("run_node"), grace=20)

    def web(self) -> Part:
        """Daphne: pages and WebSockets."""
        command = [sys.executable, "-m", "daphne", "--bind", self.bind, "--port", str(self.port), "--no-server-name",
                   "--websocket-max-message-size", str(MAX_WEBSOCKET_BYTES), "webapp.config.asgi:application"]
        return Part(name="web", command=command, ready=self.answers)

    def answers(self) -> bool:
        """Say whether the site is ready: pages, database and Redis."""
        served = env.words("PARLEY_ALLOWED_HOSTS", default=["localhost"])[0].lstrip(".*") or "localhost"
        request = urllib.request.Request(f"{self.url}readyz", headers={"Host": served})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the user's
        try:
            with opener.open(request, timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def manage(*arguments: str) -> Sequence[str]:
    """The command line of a management command."""
    return [sys.executable, str(SOURCE_FOLDER / "manage.py"), *arguments]


def _usual_or_free(port: int) -> int:
    return port if port_is_free("127.0.0.1", port) else free_port()
