"""The node worker's loop: about once a second, drive what this machine holds to what is wished, and sweep."""

import fcntl
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import redis
from django.conf import settings
from django.db import Error as DatabaseFailure
from django.db import connections

from registry.loads import deployments_for_node
from registry.models import Deployment, DeploymentState, Version
from registry.services.holding import (
    deployment_hold,
    deployment_keep,
    deployment_release,
    deployment_report_failed,
    deployment_report_kept,
    deployment_report_loading,
    deployment_report_waiting,
    deployments_idle_unload,
    deployments_wish_at_start,
    node_report,
)
from webapp.config.version import parley_version
from webapp.serving.admission import RoomOnNode
from webapp.serving.busy import deployment_is_busy
from webapp.serving.housekeeping import Housekeeping
from webapp.serving.model_process import LoadSettings, ModelProcess
from webapp.serving.model_worker import EXIT_LOAD_FAILED
from webapp.serving.sweeper import Sweeper

logger = logging.getLogger(__name__)
TICK_SECONDS = 1.0
WAITING = "waiting"
MAX_DEATHS_LOADING = 3
MAX_RESTART_WAIT = 5.0
CALM_SECONDS = 60.0  # a worker that lived this long is restarted without waiting

wake = threading.Event()


class NodeAlreadyRuns(Exception):
    """Another node worker with this name runs on this machine; the message says so."""


@dataclass
class Held:
    """A deployment that this node holds, and how its model workers fared. Times by the monotonic clock."""

    process: ModelProcess | None = None
    started: float = 0.0
    start_at: float = 0.0
    deaths_loading: int = 0
    deaths: int = 0


class NodeLoop:
    """One machine's deployments and the sweeper. `version`: hold only that one (a container for each model)."""

    def __init__(self, *, name: str, version: Version | None = None) -> None:
        self.name = name
        self.holder = f"{name}#{secrets.token_hex(4)}"
        self._version = version
        self._held: dict[int, Held] = {}
        self._sweeper = Sweeper()
        self._room = RoomOnNode(name=name, holder=self.holder)
        self._housekeeping = Housekeeping()
        self._reported = False
        self._stopping = threading.Event()
        self._lock_file = _lock(name)

    def run(self) -> None:
        """Tick until stopped, then end all model workers and let go of their deployments."""
        while not self._stopping.is_set():
            for work in (self._report, self._reconcile, self._sweeper.sweep, self._housekeeping.do_what_is_due):
                self._guard(work)
            wake.wait(TICK_SECONDS)
            wake.clear()
        self._guard(self._end_all)
        connections.close_all()
        self.close()

    def close(self) -> None:
        """Let another node worker have this one's name."""
        self._lock_file.close()

    def stop(self) -> None:
        """Have `run` return; only sets flags, so a signal handler may call it."""
        self._stopping.set()
        wake.set()

    def _guard(self, work: Callable[[], None]) -> None:
        """What fails while the database or Valkey is away is done again at the next tick."""
        try:
            work()
        except (DatabaseFailure, redis.RedisError) as error:
            logger.warning("%s waits: %s", work.__qualname__, error)
            connections.close_all()
        except Exception:
            logger.exception("%s failed", work.__qualname__)
            connections.close_all()

    def _report(self) -> None:
        """Say what this machine has and has free; at the first time also wish what is to be loaded at every start."""
        node_report(name=self.name, host=socket.gethostname(), devices=self._room.devices(),
                    version=parley_version(), started=not self._reported)
        if not self._reported and self._version is None:
            deployments_wish_at_start(node=self.name)
        self._reported = True

    def _reconcile(self) -> None:
        deployments_idle_unload(holder=self.holder)
        rows = {row.pk: row for row in deployments_for_node(node=self.name, holder=self.holder, version=self._version)}
        for pk in set(self._held) - set(rows):  # deleted, or taken by another node
            self._wind_down(pk)
        for row in rows.values():
            self._drive(row, list(rows.values()))

    def _drive(self, row: Deployment, rows: list[Deployment]) -> None:
        held = self._held.get(row.pk)
        if not row.wanted and held is not None and not row.force_unload and deployment_is_busy(row):
            deployment_keep(pk=row.pk, holder=self.holder)  # it goes on until its replies are complete
        elif not row.wanted or row.state == DeploymentState.FAILED:
            if held is not None or row.held_by == self.holder:
                self._wind_down(row.pk, keep=not row.wanted)
        elif deployment_hold(pk=row.pk, holder=self.holder, replaces=f"{self.name}#"):
            self._keep_running(row, self._held.setdefault(row.pk, Held()), rows)
        elif held is not None:
            self._wind_down(row.pk)

    def _keep_running(self, row: Deployment, held: Held, rows: list[Deployment]) -> None:
        process = held.process
        if process is not None and (status := process.exit_status()) is not None:
            self._bury(row, held, status)
        elif process is not None and (process.stopping or process.settings != LoadSettings.of(row)):
            process.stop()
        elif process is not None and row.state == DeploymentState.UNLOADING:
            deployment_report_kept(pk=row.pk, holder=self.holder)  # wished again before it was let go
        if held.process is None and row.state != DeploymentState.FAILED and time.monotonic() >= held.start_at:
            if self._is_turn_of(row, rows) and self._room.make_for(row):
                self._start(row, held)
            elif row.state != DeploymentState.FAILED and row.phase != WAITING:
                deployment_report_waiting(pk=row.pk, holder=self.holder)

    def _is_turn_of(self, row: Deployment, rows: list[Deployment]) -> bool:
        """One load at a time on the device, and none while another's memory is still coming back."""
        states = {other.pk: other.state for other in rows}
        busy = [pk for pk, held in self._held.items() if pk != row.pk and held.process is not None and (
            states.get(pk) != DeploymentState.LOADED or held.process.stopping)]
        return not busy

    def _start(self, row: Deployment, held: Held) -> None:
        held.process = ModelProcess(row, holder=self.holder, on_exit=wake.set)
        held.started = time.monotonic()
        row.state = DeploymentState.LOADING  # for the turn of those after it
        deployment_report_loading(pk=row.pk, holder=self.holder)
        logger.info("%s: model worker %d starts", row.version, held.process.pid)

    def _bury(self, row: Deployment, held: Held, status: int) -> None:
        """A model worker ended: say why, and decide when, or whether, the next one starts."""
        assert held.process is not None
        changed = held.process.stopping or held.process.settings != LoadSettings.of(row)
        held.process = None
        row.refresh_from_db(fields=["state", "reason"])
        if status == EXIT_LOAD_FAILED or changed:
            return  # the reason is in the row; or it ended as it was told
        loading = row.state != DeploymentState.LOADED
        logger.error("%s: the model worker %s%s", row.version, _how(status), " while loading" if loading else "")
        held.deaths_loading = held.deaths_loading + 1 if loading else 0
        held.deaths = 0 if time.monotonic() - held.started > CALM_SECONDS else held.deaths + 1
        held.start_at = time.monotonic() + min(max(held.deaths - 1, 0), MAX_RESTART_WAIT)
        if held.deaths_loading >= MAX_DEATHS_LOADING:
            reason = f"The model worker {_how(status)} while loading, {held.deaths_loading} times in a row."
            deployment_report_failed(pk=row.pk, holder=self.holder, reason=reason)
            row.state = DeploymentState.FAILED

    def _wind_down(self, pk: int, *, keep: bool = False) -> None:
        """End the model worker, over several ticks, and let go once nothing runs. keep: show that it is unloading."""
        held = self._held.get(pk)
        if held is not None and held.process is not None and held.process.exit_status() is None:
            held.process.stop()
            if keep:
                deployment_keep(pk=pk, holder=self.holder)
            return
        self._held.pop(pk, None)
        deployment_release(pk=pk, holder=self.holder)

    def _end_all(self) -> None:
        running = [held.process for held in self._held.values() if held.process is not None]
        for process in running:
            process.stop()
        for process in running:
            process.stop_and_wait()
        for pk in self._held:
            deployment_release(pk=pk, holder=self.holder)


def _how(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"


def _lock(name: str):  # type: ignore[no-untyped-def]
    """Hold the node's lock file for as long as this process lives. Raises NodeAlreadyRuns."""
    settings.PARLEY_HOME.mkdir(parents=True, exist_ok=True)
    file = (settings.PARLEY_HOME / f"node-{name.replace('/', '-')}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise NodeAlreadyRuns(f"A node worker named {name} runs already; set PARLEY_NODE to run another.") from None
    return file
