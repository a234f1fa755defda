"""The embedded Valkey, started for real."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
import redis

from webapp.ops.processes import free_port, spawn, wait_until
from webapp.ops.valkey import valkey_answers, valkey_command, valkey_url


def test_needs_its_password_and_hides_it_from_other_users(tmp_path: Path) -> None:
    port = free_port()
    process = spawn(valkey_command(folder=tmp_path, port=port, password="right"), env=os.environ,
                    output=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: valkey_answers(port=port, password="right"), seconds=10)
        assert not valkey_answers(port=port, password="wrong")
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        assert stat.S_IMODE((tmp_path / "valkey.conf").stat().st_mode) == 0o600
    finally:
        process.kill()
        process.wait()


def test_keeps_what_was_written_over_a_kill(tmp_path: Path) -> None:
    port = free_port()
    command = valkey_command(folder=tmp_path, port=port, password="p")
    for attempt in range(2):
        process = spawn(command, env=os.environ, output=subprocess.DEVNULL)
        try:
            assert wait_until(lambda: valkey_answers(port=port, password="p"), seconds=10)
            client = redis.Redis.from_url(valkey_url(port=port, password="p"))
            if attempt == 0:
                client.config_set("appendfsync", "always")
                client.set("key", "kept")
            else:
                assert client.get("key") == b"kept"
            client.close()
        finally:
            process.kill()
            process.wait()
