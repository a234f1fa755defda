"""A PostgreSQL server for tests: its own data folder and port, nothing kept."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from webapp.ops.processes import free_port, spawn, wait_until

UNPRIVILEGED = ("postgres", "nobody")


class PostgresUnavailable(RuntimeError):
    """There is no usable PostgreSQL server on this machine; str() says why."""


def server_binaries() -> Path:
    """Return the folder with initdb and postgres, the newest of Debian's or the one on the path. Raises the above."""
    folders = [Path(folder) for folder in glob.glob("/usr/lib/postgresql/*/bin")]
    folders.sort(key=lambda folder: float(folder.parent.name), reverse=True)
    if found := shutil.which("postgres"):
        folders.append(Path(found).parent)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise PostgresUnavailable("PostgreSQL's server (initdb, postgres) is not installed")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Start a server on the loopback interface and yield its DATABASE_URL. Raises PostgresUnavailable."""
    binaries, port = server_binaries(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="parley-postgres-"))
    try:
        as_user = _drop_root(folder)
        data = folder / "data"
        _initialise([*as_user, str(binaries / "initdb"), "--pgdata", str(data), "--username", "parley",
                     "--auth", "trust", "--encoding", "UTF8", "--no-sync"])
        process = spawn(
            [*as_user, str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", f"unix_socket_directories={folder}", "-c", "fsync=off", "-c", "full_page_writes=off"],
            env=os.environ, output=subprocess.DEVNULL, cwd=folder, when_parent_dies=signal.SIGQUIT)
        try:
            if not wait_until(lambda: _answers(port), seconds=30):
                raise PostgresUnavailable(f"PostgreSQL did not answer; its exit code is {process.poll()}")
            yield f"postgres://parley@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGINT)  # its fast shutdown
            process.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drop_root(folder: Path) -> Sequence[str]:
    """PostgreSQL refuses to run as root: give the folder to another user and return the command that becomes it."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise PostgresUnavailable("PostgreSQL does not run as root and setpriv is not installed")
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = next(users[name] for name in UNPRIVILEGED if name in users)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _initialise(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise PostgresUnavailable(f"initdb failed: {done.stdout.strip()[-500:]}")


def _answers(port: int) -> bool:
    import psycopg

    try:
        psycopg.connect(f"postgres://parley@127.0.0.1:{port}/postgres", connect_timeout=2).close()
    except psycopg.Error:
        return False
    return True
