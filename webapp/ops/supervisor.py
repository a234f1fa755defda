"""The supervisor: starts the parts of a site in order, restarts what dies, and ends all of them together.

It is single-threaded and owns every process below it: the parts are its children, and on Linux it also becomes the
parent of whatever a dead part leaves behind, so it can promise that nothing outlives it. If it is itself killed, the
kernel ends its children.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from webapp.ops.logs import last_lines, rotate
from webapp.ops.processes import adopt_orphans, children_of, descendants_of, kill_all, spawn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK_SECONDS = 0.25
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 30.0
STEADY_SECONDS = 60.0  # a part that lived this long has started well: its next restart is not delayed
ROTATE_SECONDS = 60.0
ORPHAN_SECONDS = 3.0


class PartFailed(RuntimeError):
    """A part ended before it was ready. str() is the reason, in words."""


class Stopped(RuntimeError):
    """Somebody asked to stop while the site was starting."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One long-running process of the site.

    ready: says whether it answers; the next part starts after that. None: it need not be waited for.
    grace: seconds from the stop signal to SIGKILL. when_parent_dies: what it gets if the supervisor is killed.
    """

    name: str
    command: Sequence[str]
    ready: Callable[[], bool] | None = None
    ready_seconds: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 10.0
    when_parent_dies: signal.Signals = signal.SIGKILL


@dataclass
class PartState:
    """What the supervisor knows of a part's present process; `pid` is None while it waits to be restarted."""

    part: Part
    log: Path
    pid: int | None = None
    log_start: int = 0
    started_at: float = 0.0
    restart_at: float = 0.0
    failures: int = 0
    reason: str = ""


@dataclass
class Task:
    """A process that runs beside the parts and ends by itself; `status` is its exit code once it has ended."""

    pid: int
    status: int | None = None


@dataclass(kw_only=True)
class Supervisor:
    """Use as a context manager: leaving it ends every process. `say` gets one line of text per event."""

    env: Mapping[str, str]
    cwd: Path
    logs: Path
    say: Callable[[str], None]
    states: dict[str, PartState] = field(default_factory=dict)
    _tasks: dict[int, Task] = field(default_factory=dict)
    _stop_requests: int = 0
    _last_request: float = 0.0
    _orphans: dict[int, float] = field(default_factory=dict)
    _next_sweep: float = 0.0
    _next_rotation: float = 0.0

    def __enter__(self) -> Self:
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake the loop
        adopt_orphans()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.stop()
        signal.set_wakeup_fd(-1)
        os.close(self._wake)
        os.close(self._wake_end)

    @property
    def stop_requested(self) -> bool:
        return self._stop_requests > 0

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        """Count requests; two within a second are one, sent to the process and through `make` as well."""
        if time.monotonic() - self._last_request > 1:
            self._last_request = time.monotonic()
            self._stop_requests += 1

    # Starting

    def start(self, part: Part) -> None:
        """Start a part and wait until it is ready. Raises PartFailed or Stopped."""
        state = self.states[part.name] = PartState(part, self.logs / f"{part.name}.log")
        self._start(state)
        self._wait_until_ready(state)

    def _start(self, state: PartState) -> None:
        rotate(state.log)
        with open(state.log, "ab") as log:
            state.log_start = log.tell()
            process = spawn(state.part.command, env=self.env, cwd=self.cwd, output=log,
                            when_parent_dies=state.part.when_parent_dies)
        state.pid, state.started_at = _own(process), time.monotonic()

    def _wait_until_ready(self, state: PartState) -> None:
        deadline = time.monotonic() + state.part.ready_seconds
        while state.part.ready is not None and not state.part.ready():
            if state.failures:
                raise PartFailed(f"{state.part.name} ended at start: {state.reason}")
            if time.monotonic() > deadline:
                raise PartFailed(f"{state.part.name} did not answer within {state.part.ready_seconds:.0f} s; "
                                 f"its log is {state.log}.")
            self.tick()

    def run_beside(self, command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> Task:
        """Start a command whose output goes to the terminal; its `status` is set in a later tick."""
        process = spawn(command, env=self.env, cwd=self.cwd, output=None, pass_fds=pass_fds)
        task = self._tasks[process.pid] = Task(_own(process))
        return task

    # Running

    def tick(self) -> None:
        """Wait for a moment or a signal, then look after all processes. Raises Stopped when asked to stop."""
        self._sleep(TICK_SECONDS)
        if self.stop_requested:
            raise Stopped
        self._reap()
        now = time.monotonic()
        for state in self.states.values():
            if state.pid is None and now >= state.restart_at:
                self._start(state)
        if now >= self._next_sweep:
            self._next_sweep = now + 1
            self._end_orphans()
        if now >= self._next_rotation:
            self._next_rotation = now + ROTATE_SECONDS
            for state in self.states.values():
                rotate(state.log)

    def _sleep(self, seconds: float) -> None:
        """Wait that long, or until a signal comes: a stop request or the end of a child."""
        select.select([self._wake], [], [], seconds)
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def run(self) -> None:
        """Look after the parts until somebody asks to stop."""
        with suppress(Stopped):
            while True:
                self.tick()

    def _reap(self) -> None:
        """Collect every process that has ended: parts, tasks and adopted orphans."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = found[0], os.waitstatus_to_exitcode(found[1])
                if task := self._tasks.pop(pid, None):
                    task.status = status
                for state in self.states.values():
                    if state.pid == pid:
                        self._on_part_ended(state, status)

    def _on_part_ended(self, state: PartState, status: int) -> None:
        """Note why, end what the part left behind, and set the time of its restart: at once, then ever later."""
        if state.pid is not None:
            _kill_group(state.pid)
        now = time.monotonic()
        state.failures = 1 if now - state.started_at > STEADY_SECONDS else state.failures + 1
        delay = min(FIRST_DELAY_SECONDS * 3 ** (state.failures - 1), MAX_DELAY_SECONDS)
        state.reason = exit_words(status)
        if status > 0 and (lines := last_lines(state.log, 1, since=state.log_start)):
            state.reason += f"; it said: {lines[0]}"
        state.pid, state.restart_at = None, now + delay
        if not self.stop_requested:
            self.say(f"{state.part.name} ended ({state.reason}); it starts again in {delay:.1f} s. Log: {state.log}")

    def _end_orphans(self) -> None:
        """Kill what dead parts left behind (children that are neither part nor task), after some time to end itself."""
        known = {state.pid for state in self.states.values()} | set(self._tasks)
        now = time.monotonic()
        self._orphans = {pid: self._orphans.get(pid, now) for pid in set(children_of(os.getpid())) - known}
        late = [pid for pid, since in self._orphans.items() if now - since >= ORPHAN_SECONDS]
        kill_all([each for pid in late for each in (*descendants_of(pid), pid)])

    # Stopping

    def stop(self) -> None:
        """End the parts, last started first, each with its grace; a second stop signal kills what is left at once."""
        self._stop_requests = max(self._stop_requests, 1)
        kill_all(list(self._tasks))
        for state in reversed(list(self.states.values())):
            self._stop_part(state)
        self.states.clear()
        self._kill_the_rest()

    def _stop_part(self, state: PartState) -> None:
        if state.pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(state.pid, state.part.stop_signal)
        deadline = time.monotonic() + state.part.grace
        while state.pid is not None and self._stop_requests < 2 and time.monotonic() < deadline:
            self._sleep(TICK_SECONDS)
            self._reap()
        if state.pid is not None:
            self.say(f"{state.part.name} did not stop by itself and is killed.")
            _kill_group(state.pid)

    def _kill_the_rest(self) -> None:
        """Kill and collect whatever is still below this process, adopted orphans included."""
        deadline = time.monotonic() + 5
        with suppress(ChildProcessError):
            while time.monotonic() < deadline:
                kill_all(descendants_of(os.getpid()))
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.02)


def _own(process: subprocess.Popen[bytes]) -> int:
    """Return a process's id; from here on the supervisor collects its exit, not the Popen object."""
    process.returncode = 0  # else Popen would warn, and wait for a process that is already collected
    return process.pid


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def exit_words(status: int) -> str:
    """Say how a process ended, from the exit code that os.waitstatus_to_exitcode gives."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit code {status}"
