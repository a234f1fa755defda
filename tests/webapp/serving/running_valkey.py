"""A Valkey of a test's own, with its data on disk as `up` keeps it, that can be killed and started again."""

import subprocess
from pathlib import Path

from webapp.ops.processes import free_port, spawn, wait_until
from webapp.ops.valkey import valkey_answers, valkey_command, valkey_url

PASSWORD = "x"


class OwnValkey:
    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._command = valkey_command(folder=folder, port=self._port, password=PASSWORD)
        self.url = valkey_url(port=self._port, password=PASSWORD)
        self.start()

    def start(self) -> None:
        self._process = spawn(self._command, env={}, output=subprocess.DEVNULL)
        assert wait_until(lambda: valkey_answers(port=self._port, password=PASSWORD), seconds=10)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._process.kill()
        self._process.wait()
