"""Runs the checks in a child process that can be killed, within limits on time and memory, and gathers what it says."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import registry
from registry.checks.results import CheckResult, Facts, Report, SubjectKind

LOOK_SECONDS = 0.2
MAX_LINE_BYTES = 1024 * 1024
STDERR_CHARS = 500


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a verification may take: seconds in all and of one check, bytes of private memory."""

    seconds: float = 600.0
    check_seconds: float = 120.0
    memory_bytes: int = 2 * 2**30


class ChecksStopped(Exception):
    """The caller asked for the end of a verification."""


OnProgress = Callable[[str, int, int], None]
"""Called before each check with its name, its number from 1 on, and how many there are."""


def run_checks(
    folder: Path, *, kind: SubjectKind, base: Path | None = None, earlier: str = "", limits: Limits | None = None,
    on_progress: OnProgress = lambda name, number, of: None,
    on_result: Callable[[CheckResult], None] = lambda result: None, should_stop: Callable[[], bool] = lambda: False,
) -> Report:
    """Verify a staged folder and return the report; a child that is ended by a limit counts as a refusal that says so.

    base: the base model's folder, for an adapter. earlier: the vocabulary digest of the version before, to compare.
    on_result gets each result as it comes. should_stop is asked a few times a second. Raises ChecksStopped after it
    said yes; the child is gone then.
    """
    limits = limits or Limits()
    command = [sys.executable, "-m", "registry.checks", str(folder), "--kind", kind, "--follow-stdin",
               "--earlier", earlier, "--memory", str(limits.memory_bytes), "--seconds", str(limits.check_seconds)]
    if base is not None:
        command += ["--base", str(base)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=_environment(), start_new_session=True)
    try:
        return _Gathering(process, limits, on_progress, on_result, should_stop).report()
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


class _Gathering:
    """Reads a child's lines until its end, a limit or a stop."""

    def __init__(self, process: "subprocess.Popen[bytes]", limits: Limits, on_progress: OnProgress,
                 on_result: Callable[[CheckResult], None], should_stop: Callable[[], bool]) -> None:
        self._process, self._limits = process, limits
        self._on_progress, self._on_result, self._should_stop = on_progress, on_result, should_stop
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._stderr = b""
        self._results: list[CheckResult] = []
        self._check = "Verification"  # the one that runs
        assert process.stdout is not None and process.stderr is not None
        self._readers = [threading.Thread(target=self._read, args=(process.stdout,), daemon=True),
                         threading.Thread(target=self._read_errors, args=(process.stderr,), daemon=True)]

    def report(self) -> Report:
        for reader in self._readers:
            reader.start()
        deadline = time.monotonic() + self._limits.seconds
        try:
            while True:
                if self._should_stop():
                    raise ChecksStopped
                if time.monotonic() > deadline:
                    return self._refused(f"takes longer than {self._limits.seconds:g} seconds in all and was ended")
                try:
                    line = self._lines.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    continue
                if line is None:
                    return self._refused(self._why_it_ended())
                if (report := self._take(json.loads(line))) is not None:
                    return report
        finally:
            self._process.kill()
            for reader in self._readers:
                reader.join()

    def _take(self, line: dict[str, Any]) -> Report | None:
        event = line.pop("event")
        if event == "begin":
            self._check = line["check"]
            self._on_progress(line["check"], line["number"], line["of"])
        elif event == "result":
            self._results.append(CheckResult(**line))
            self._on_result(self._results[-1])
        else:
            return Report(results=tuple(self._results), facts=Facts(**line["facts"]), not_run=tuple(line["not_run"]))
        return None

    def _refused(self, why: str) -> Report:
        result = CheckResult(name=self._check, outcome="refuse", message=f"{self._check}: {why}")
        self._on_result(result)
        return Report(results=(*self._results, result))

    def _why_it_ended(self) -> str:
        status = self._process.wait()
        if status == -signal.SIGALRM:
            return "takes too long and was ended"
        if status in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGKILL, -signal.SIGBUS):
            return f"needs more memory than verification may take, or breaks it ({signal.Signals(-status).name})"
        self._readers[1].join(1.0)
        last = self._stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][-STDERR_CHARS:]
        return f"verification itself failed (exit status {status}): {last}"

    def _read(self, pipe: IO[bytes]) -> None:
        while line := pipe.readline(MAX_LINE_BYTES):
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self, pipe: IO[bytes]) -> None:
        while piece := pipe.read1(4096):  # type: ignore[attr-defined]
            self._stderr = (self._stderr + piece)[-4096:]


def _environment() -> dict[str, str]:
    """Return what the child needs and nothing more: no secret of the site, one thread."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "SYSTEMROOT") if name in os.environ}
    root = str(Path(registry.__file__).resolve().parent.parent)
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    return kept | threads | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
                             "TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1"}
