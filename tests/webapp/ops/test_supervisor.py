"""The supervisor with real processes: restarts, order, and that nothing outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from webapp.ops.logs import last_lines, rotate
from webapp.ops.processes import wait_until

ROOT = Path(__file__).resolve().parents[3]
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
DEAF = [sys.executable, "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True);"
        "time.sleep(600)"]
# Starts a grandchild in a session of its own, which a signal to the process group doesn't reach.
PARENT = [sys.executable, "-c", "import subprocess, sys, time;"
          "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True);"
          "print('parent', flush=True); time.sleep(600)"]

Start = Callable[..., "Running"]


class Running:
    """A supervisor in a process of its own; `lines` is all that it has said so far."""

    def __init__(self, folder: Path, parts: list[dict[str, Any]]) -> None:
        self.folder = folder
        self.output = folder / "output"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.webapp.ops.supervised", str(folder), json.dumps(parts)],
                cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        self.watched: set[psutil.Process] = set()

    @property
    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()

    def says(self, words: str, *, seconds: float = 20) -> bool:
        return wait_until(lambda: any(words in line for line in self.lines), seconds=seconds)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def watch(self) -> None:
        """Remember every process that is there now."""
        self.watched |= set(psutil.Process(self.process.pid).children(recursive=True))

    def left(self) -> list[psutil.Process]:
        return [process for process in self.watched if process.is_running() and process.status() != "zombie"]

    def log_says(self, part: str, words: str) -> bool:
        return wait_until(lambda: words in "".join(last_lines(self.folder / f"{part}.log", 5)), seconds=20)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def start(*parts: dict[str, Any]) -> Running:
        running = Running(tmp_path, list(parts))
        started.append(running)
        assert running.says("started"), running.lines
        running.watch()
        return running

    yield start
    for running in started:
        running.process.kill()
        running.process.wait()
        for process in running.left():
            process.kill()


def test_starts_a_killed_part_again_and_says_why(start: Start) -> None:
    site = start({"name": "a", "command": SLEEPER}, {"name": "b", "command": SLEEPER})
    first, second = site.children()
    first.kill()
    assert site.says("a ended (killed by SIGKILL)")
    assert wait_until(lambda: len(site.children()) == 2, seconds=5)
    assert second in site.children()


def test_a_part_that_keeps_dying_is_started_ever_later_with_its_last_words(start: Start) -> None:
    site = start({"name": "a", "command": [sys.executable, "-c", "raise SystemExit('no such model')"]})
    assert site.says("starts again in 0.9 s")
    assert "a ended (exit code 1; it said: no such model); it starts again in 0.1 s." in site.lines[1]
    assert "starts again in 0.3 s" in site.lines[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_ends_every_process(start: Start, number: signal.Signals) -> None:
    site = start({"name": "a", "command": PARENT}, {"name": "b", "command": SLEEPER})
    assert site.log_says("a", "parent")
    site.watch()
    assert len(site.watched) == 3
    site.process.send_signal(number)
    assert site.process.wait(timeout=10) == 0
    assert not site.left()
    assert site.lines[-1] == "stopped"


def test_a_part_that_ignores_the_stop_signal_is_killed_after_its_grace(start: Start) -> None:
    site = start({"name": "a", "command": DEAF, "grace": 1.0})
    assert site.log_says("a", "deaf")
    began = time.monotonic()
    site.process.terminate()
    site.process.wait(timeout=10)
    assert 1.0 <= time.monotonic() - began < 5
    assert not site.left()


def test_a_second_stop_signal_kills_at_once(start: Start) -> None:
    site = start({"name": "a", "command": DEAF, "grace": 60.0})
    assert site.log_says("a", "deaf")
    site.process.send_signal(signal.SIGINT)
    time.sleep(1.2)
    site.process.send_signal(signal.SIGINT)
    site.process.wait(timeout=5)
    assert not site.left()


def test_parts_stop_in_reverse_order(start: Start, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    noting = ("import pathlib, signal, sys, time\n"
              "def stop(number, frame):\n"
              "    time.sleep(0.3)\n"
              f"    open({str(notes)!r}, 'a').write(sys.argv[1])\n"
              "    sys.exit()\n"
              "signal.signal(signal.SIGTERM, stop); print('ready', flush=True); time.sleep(600)")
    site = start(*({"name": name, "command": [sys.executable, "-c", noting, name]} for name in "abc"))
    assert all(site.log_says(name, "ready") for name in "abc")
    site.process.terminate()
    site.process.wait(timeout=10)
    assert notes.read_text() == "cba"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children with their parent only on Linux")
def test_children_end_when_the_supervisor_is_killed(start: Start) -> None:
    site = start({"name": "a", "command": DEAF}, {"name": "b", "command": SLEEPER})
    site.process.kill()
    site.process.wait()
    assert wait_until(lambda: not site.left(), seconds=5)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can make the supervisor the parent of orphans")
def test_what_a_killed_part_leaves_behind_is_ended(start: Start) -> None:
    site = start({"name": "a", "command": PARENT})
    assert site.log_says("a", "parent")
    [part] = site.children()
    [grandchild] = part.children()
    part.kill()
    assert wait_until(lambda: not grandchild.is_running() or grandchild.status() == "zombie", seconds=10)
    site.process.terminate()  # not by SIGKILL: the new grandchild would be left
    site.process.wait(timeout=10)


def test_a_log_that_grew_too_large_is_moved_aside(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("x" * 100)
    rotate(log, max_bytes=99)
    assert log.read_text() == ""
    assert (tmp_path / "a.log.1").read_text() == "x" * 100
    rotate(log, max_bytes=99)
    assert (tmp_path / "a.log.1").read_text() == "x" * 100


def test_last_lines_are_those_of_this_start(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("old\n")
    start = os.path.getsize(log)
    log.write_text("old\nnew\n\n")
    assert last_lines(log, 3, since=start) == ["new"]
    assert last_lines(tmp_path / "missing", 3) == []
