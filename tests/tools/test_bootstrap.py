"""Setting up where something is missing: one plain sentence, and nothing is done twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import bootstrap

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_machine_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty search path to put pretended Pythons into; the one that runs the tests is out of sight."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.delenv("PARLEY_PYTHON", raising=False)
    return tmp_path


def pretend(folder: Path, name: str, answer: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {answer}\n")
    path.chmod(0o755)
    return path


def test_an_old_python_is_refused_with_its_version(no_machine_python: Path) -> None:
    pretend(no_machine_python, "python3", "3 9 True")
    with pytest.raises(bootstrap.SetupError, match=r"Python 3.11 or newer .*/python3 is Python 3\.9\."):
        bootstrap.suitable_python()


def test_a_python_without_venv_is_refused_with_the_package_that_helps(no_machine_python: Path) -> None:
    pretend(no_machine_python, "python3", "3 12 False")
    with pytest.raises(bootstrap.SetupError, match="without the module venv; .* install python3-venv"):
        bootstrap.suitable_python()


def test_a_newer_python_beside_an_old_one_is_found(no_machine_python: Path) -> None:
    pretend(no_machine_python, "python3", "3 9 True")
    newer = pretend(no_machine_python, "python3.12", "3 12 True")
    assert bootstrap.suitable_python() == str(newer)


def test_no_python_at_all_is_said(no_machine_python: Path) -> None:
    with pytest.raises(bootstrap.SetupError, match="there is no python3 here"):
        bootstrap.suitable_python()


def test_an_old_node_is_not_used(no_machine_python: Path) -> None:
    pretend(no_machine_python, "node", "v16.20.0")
    pretend(no_machine_python, "npm", "8.0.0")
    assert not bootstrap.machine_has_npm()
    pretend(no_machine_python, "node", "v20.1.0")
    assert bootstrap.machine_has_npm()


def test_a_stamp_holds_until_a_file_changes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("one")
    stamp = bootstrap.Stamp(tmp_path / "stamp", [source])
    assert not stamp.holds()
    stamp.write()
    assert stamp.holds()
    source.write_text("two")
    assert not stamp.holds()


def test_a_failed_command_is_reported_with_its_last_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('first'); raise SystemExit('no space left')"]
    with pytest.raises(bootstrap.SetupError, match=r"Installing failed \(exit code 1\): no space left"):
        bootstrap.run(command, tmp_path / "log", "Installing")


def test_a_folder_that_cannot_be_written_is_one_sentence() -> None:
    done = subprocess.run([sys.executable, "-I", str(ROOT / "tools/bootstrap.py"), "setup"], capture_output=True,
                          text=True, env=os.environ | {"PARLEY_VENV": "/proc/parley"}, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("Parley can't be set up: /proc/parley can't be written")
    assert done.stderr.count("\n") == 1
