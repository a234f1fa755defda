"""Starting and ending operating-system processes so that none outlives the one that started it."""

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Loaded before any fork: a child between fork and exec may not import anything.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def follow_parent(when_parent_dies: signal.Signals) -> None:
    """Have the kernel send this process that signal as soon as its parent is gone (Linux only)."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, int(when_parent_dies))


def _follow_starter(when_parent_dies: signal.Signals) -> Callable[[], None]:
    """Return a preexec function that makes a child follow this process, even if it dies in that very moment."""
    starter = os.getpid()

    def follow() -> None:
        follow_parent(when_parent_dies)
        if os.getppid() != starter:
            os.kill(os.getpid(), when_parent_dies)

    return follow


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent dies, so that it can end them (Linux only)."""
    if _libc is not None:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    output: IO[bytes] | int | None,
    cwd: Path | None = None,
    when_parent_dies: signal.Signals = signal.SIGKILL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, without input, and return it. Raises OSError."""
    return subprocess.Popen(
        command, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        start_new_session=True, preexec_fn=_follow_starter(when_parent_dies), pass_fds=pass_fds,
    )


def children_of(pid: int) -> Iterator[int]:
    """Yield the ids of the direct children of a process, from /proc; none where there is no /proc."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, task.read_text().split())


def descendants_of(pid: int) -> list[int]:
    """Return the ids of all processes below one, parents before their children."""
    found: list[int] = []
    for child in children_of(pid):
        found += [child, *descendants_of(child)]
    return found


def kill_all(pids: Sequence[int]) -> None:
    """Send SIGKILL to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


def port_is_free(host: str, port: int) -> bool:
    """Say whether a server could listen there now. Raises OSError when the address itself is unusable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def wait_until(condition: Callable[[], bool], *, seconds: float, every: float = 0.05) -> bool:
    """Return True as soon as the condition holds, False when it doesn't within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
