"""The process of one loaded version: starts the engine, reports its loading, then takes from the version's queue."""

import logging
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from celery.signals import worker_shutting_down
from celery.utils.nodenames import gethostname, nodename
from django.conf import settings

from inference.client import AdapterRefusedError, EngineDiedError, EngineLoadError
from inference.protocol import Loading, Ready
from inference.spec import EngineConfig, SpecError
from registry.deployment_settings import engine_arguments
from registry.errors import BlobMissing
from registry.fetching import blobs_fetch
from registry.models import Deployment
from registry.selectors import version_folder
from registry.services.holding import (
    deployment_report_failed,
    deployment_report_loaded,
    deployment_report_loading,
    deployment_report_use,
)
from webapp.config.celery import app
from webapp.serving.devices import devices
from webapp.serving.dispatch import model_queue
from webapp.serving.engine_host import EngineHost

logger = logging.getLogger(__name__)
EXIT_LOAD_FAILED = 3
EXIT_DIED_LOADING = 4
EXTRA_TASKS = 4  # beyond what the engine runs at once: these wait inside it, so that it never idles
LOAD_SECONDS = 1800.0
CLOSE_SECONDS = 8.0
REPORT_SECONDS = 0.25

_host: EngineHost | None = None


def host() -> EngineHost:
    """The engine of this process. Raises RuntimeError in a process that has none."""
    if _host is None:
        raise RuntimeError("this worker holds no engine; generations run in model workers only")
    return _host


def model_worker_run(*, deployment_pk: int, holder: str) -> int:
    """Hold the deployment's engine until told to end or until it is lost; returns the exit status.

    The parent's end closes standard input, which ends this process, which ends the engine.
    """
    global _host
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    deployment = Deployment.objects.select_related("version__model").get(pk=deployment_pk)
    deployment_report_loading(pk=deployment.pk, holder=holder)
    reporter = _LoadReporter(deployment.pk, holder)
    try:
        adapters = list(deployment.adapters.select_related("model"))
        for version in (deployment.version, *adapters):
            blobs_fetch(version, on_progress=partial(reporter.report, "fetching"))
        _host = _start_engine(deployment)
        ready = _host.wait_ready(timeout=LOAD_SECONDS, on_loading=reporter)
        for adapter in adapters:
            _host.load_adapter(adapter)
    except EngineDiedError as error:
        logger.error("%s: %s", deployment.version, error)
        return EXIT_DIED_LOADING
    except (EngineLoadError, AdapterRefusedError, SpecError, BlobMissing, OSError) as error:
        logger.error("%s can't be loaded: %s", deployment.version, error)
        deployment_report_failed(pk=deployment.pk, holder=holder, reason=str(error))
        return EXIT_LOAD_FAILED
    facts = msgspec.to_builtins(ready) | {"resident_bytes": resident_bytes(ready.pid)}
    deployment_report_loaded(pk=deployment.pk, holder=holder, facts=facts)
    _host.on_use = partial(deployment_report_use, pk=deployment.pk, holder=holder)
    logger.info("%s is loaded in %s, in %.1f s", deployment.version, ready.mode, ready.load_seconds)
    return _serve(deployment, ready, _host)


def engine_config(deployment: Deployment) -> EngineConfig:
    """What the deployment asks of its engine; a KV cache without a set size is as large as was planned. SpecError."""
    planned = {"kv_cache_bytes": kv} if (kv := deployment.plan.get("kv_bytes")) else {}
    return EngineConfig(model=str(version_folder(deployment.version)), threads=settings.PARLEY_ENGINE_THREADS,
                        kind=deployment.version.model.kind,  # type: ignore[arg-type]  # adapters are refused earlier
                        max_adapters=deployment.adapters.count(),
                        **{"device": devices(speeds=False)[0]["kind"]} | planned | engine_arguments(deployment))


def _start_engine(deployment: Deployment) -> EngineHost:
    socket_dir = settings.PARLEY_HOME / "run"
    socket_dir.mkdir(parents=True, exist_ok=True)
    return EngineHost(version_pk=deployment.version_id, config=engine_config(deployment), socket_dir=socket_dir,
                      on_lost=_end_this_process)


def _serve(deployment: Deployment, ready: Ready, engine: EngineHost) -> int:
    """Take from the version's queue until a signal ends it."""
    worker_shutting_down.connect(_on_shutdown, weak=False)
    worker = app.Worker(
        queues=[model_queue(deployment.version_id)], pool="threads", concurrency=ready.max_num_seqs + EXTRA_TASKS,
        hostname=nodename(f"model-{deployment.version_id}-{os.getpid()}", gethostname()), quiet=True,
        without_gossip=True, without_mingle=True, without_heartbeat=True, loglevel="INFO")
    worker.start()
    engine.close()
    if engine.lost:
        logger.error("%s: the engine ended: %s", deployment.version, engine.lost)
    return 1 if engine.lost else 0


def _on_shutdown(**_: Any) -> None:
    """Celery begins to end: let go of the generations now, which also lets its threads end."""
    host().begin_closing()
    force = threading.Timer(CLOSE_SECONDS, os._exit, args=[1])  # it may be waiting for a broker that is away
    force.daemon = True
    force.start()


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    logger.info("the node worker is gone or wants an end")
    _end_this_process()


def _end_this_process() -> None:
    """Before Celery runs, SIGTERM ends the process as it is; later it ends orderly."""
    os.kill(os.getpid(), signal.SIGTERM)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds now, its part of what it shares included; 0 where nothing says it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration, ValueError):
        return 0


class _LoadReporter:
    """Writes the load's progress into the deployment, a few times a second and at each new phase."""

    def __init__(self, pk: int, holder: str) -> None:
        self._pk, self._holder, self._phase, self._at = pk, holder, "", 0.0

    def __call__(self, loading: Loading) -> None:
        self.report(loading.phase, loading.done, loading.total)

    def report(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase == self._phase and now - self._at < REPORT_SECONDS:
            return
        self._phase, self._at = phase, now
        deployment_report_loading(pk=self._pk, holder=self._holder, phase=phase, done=done, total=total)
