"""Starts an engine process: the name of its socket, the environment that it gets, the command that it runs."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

import msgspec

import inference
from inference.spec import EngineConfig

MAX_SOCKET_PATH = 100  # bytes; the system's limit is 108 on Linux and 104 elsewhere


def launch(config: EngineConfig, socket: Path, *, module: str) -> "subprocess.Popen[bytes]":
    """Start `python -m module` with a pipe that ends it when this process does, and one for its messages."""
    command = [sys.executable, "-m", module, "--socket", str(socket), "--config", msgspec.json.encode(config).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(config),
                            start_new_session=True)  # a Ctrl-C in the terminal is for the parent alone


def socket_path(socket_dir: Path) -> Path:
    """A new name for a socket in the folder; in the system's temporary folder when the path would be too long."""
    socket_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = socket_dir / f"{uuid4().hex[:12]}.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        path = Path(tempfile.mkdtemp(prefix="parley-")) / path.name
    return path


def _environment(config: EngineConfig) -> dict[str, str]:
    environment = dict(os.environ)
    root = str(Path(inference.__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    if config.threads:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
            environment[name] = str(config.threads)
    return environment
