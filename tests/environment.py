"""What has to exist before Django's settings load: a home folder, a secret key and a real Valkey of its own."""

import atexit
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from webapp.ops.processes import free_port, spawn, wait_until
from webapp.ops.valkey import valkey_answers, valkey_command, valkey_url

ROOT = Path(__file__).resolve().parents[1]
PASSWORD = "tests"


class TestEnvironment:
    """One per test session. `home` is PARLEY_HOME; `redis_url` leads to a Valkey that ends with this process."""

    __test__ = False

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="parley-tests-"))
        (self.home / "static").mkdir()  # the static files' middleware warns when there is none
        self.port = free_port()
        self.redis_url = valkey_url(port=self.port, password=PASSWORD)
        self.valkey = self._start_valkey()
        atexit.register(self.close)

    def _start_valkey(self) -> subprocess.Popen[bytes]:
        command = valkey_command(folder=self.home / "valkey", port=self.port, password=PASSWORD, persistent=False)
        process = spawn(command, env=os.environ, output=subprocess.DEVNULL)
        if not wait_until(lambda: valkey_answers(port=self.port, password=PASSWORD), seconds=10):
            raise RuntimeError(f"Valkey did not answer on port {self.port}; its exit code is {process.poll()}.")
        return process

    def export(self) -> None:
        """Set the variables that settings read. DATABASE_URL is left alone: it says which database is tested."""
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "webapp.config.settings",
            "PARLEY_HOME": str(self.home),
            "PARLEY_SECRET_KEY": "a key for tests only",
            "REDIS_URL": self.redis_url,
            "PARLEY_LOG_LEVEL": "WARNING",
        }
        os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / "var" / "cache" / "numba"))  # compiled once, then kept
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch, the oracle, may not spin while an engine computes
        for name in ("PARLEY_DEBUG", "PARLEY_HTTPS", "PARLEY_PORT", "PARLEY_ADMIN_PASSWORD", "PARLEY_ALLOWED_HOSTS"):
            os.environ.pop(name, None)

    def close(self) -> None:
        self.valkey.kill()
        self.valkey.wait()
        shutil.rmtree(self.home, ignore_errors=True)
