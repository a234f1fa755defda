"""`up` where it can't start: one plain sentence that names what is wrong, and exit status 1."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from webapp.ops.processes import free_port
from webapp.ops.site import Site

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def up(home: Path, **variables: str) -> str:
    """Run `up` and return what it said on stderr; it has to refuse, and say nothing else."""
    env = os.environ | {"PARLEY_HOME": str(home), "PARLEY_PORT": str(free_port()), **variables}
    done = subprocess.run([sys.executable, "-m", "webapp.ops.up"], cwd=ROOT, env=env, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("Parley can't start: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_taken_port_is_named(tmp_path: Path, taken_port: int) -> None:
    assert f"Port {taken_port} on 127.0.0.1 is taken" in up(tmp_path, PARLEY_PORT=str(taken_port))


def test_a_taken_valkey_port_is_named(tmp_path: Path, taken_port: int) -> None:
    assert "Set PARLEY_VALKEY_PORT" in up(tmp_path, REDIS_URL="", PARLEY_VALKEY_PORT=str(taken_port))


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    assert "PARLEY_BIND" in up(tmp_path, PARLEY_BIND="203.0.113.7")


def test_a_home_folder_that_cannot_be_written_is_named() -> None:
    assert "PARLEY_HOME: /proc/parley can't be written" in up(Path("/proc/parley"))


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "PARLEY_HOME must be a folder" in up(tmp_path / "file")


@pytest.mark.parametrize(("name", "value"), [("PARLEY_PORT", "abc"), ("PARLEY_PORT", "70000"), ("REDIS_URL", "foo")])
def test_a_bad_variable_is_named(tmp_path: Path, name: str, value: str) -> None:
    assert name in up(tmp_path, **{name: value})


def test_a_second_one_on_the_same_home_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    site = Site(home=tmp_path, bind="127.0.0.1", port=free_port(), valkey_port=free_port())
    with site.locked():
        site.write_secrets()
        before = (tmp_path / "redis_url").read_text()
        assert f"already runs on {tmp_path} (process {os.getpid()})" in up(tmp_path, REDIS_URL="")
        assert (tmp_path / "redis_url").read_text() == before


def test_secrets_are_made_once_and_are_the_owner_s_alone(tmp_path: Path) -> None:
    site = Site(home=tmp_path, bind="127.0.0.1", port=free_port(), valkey_port=free_port())
    with site.locked():
        site.write_secrets()
        key = (tmp_path / "secret_key").read_text()
        site.write_secrets()
    assert (tmp_path / "secret_key").read_text() == key
    for name in ("secret_key", "redis_url", "valkey_password"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600, name


@pytest.mark.parametrize(("bind", "url"), [
    ("127.0.0.1", "http://127.0.0.1:80/"), ("0.0.0.0", "http://127.0.0.1:80/"), ("::", "http://[::1]:80/"),
])
def test_the_printed_address_can_be_opened(tmp_path: Path, bind: str, url: str) -> None:
    assert Site(home=tmp_path, bind=bind, port=80, valkey_port=None).url == url
