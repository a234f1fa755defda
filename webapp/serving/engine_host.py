"""What a model worker holds for its tasks: the engine's process, its pump, and the ear for stops."""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import redis
from django.db import Error as DatabaseFailure
from django.db import connections

from inference.client import EngineDiedError, EngineLostError, EngineProcess
from inference.protocol import EngineFrame, Loading, Ready, Rejected, StepOutput, Submit
from inference.spec import EngineConfig, SamplingParams
from registry.models import Version
from registry.selectors import version_folder
from webapp.serving.claims import generation_claim, generation_release
from webapp.serving.dispatch import STOP_POOLED, generation_dispatch, stop_channel
from webapp.serving.models import Generation, GenerationState
from webapp.serving.pooled import pooled_dispatch_again
from webapp.serving.pooled_worker import pooled_run
from webapp.serving.pump import DRAIN_SECONDS, Pump, StopAsked
from webapp.serving.stats import EXPERTS_EVERY, engine_stats_publish
from webapp.serving.streams import stream_client
from webapp.serving.track import Track

logger = logging.getLogger(__name__)
STATS_SECONDS = 1.0
USE_SECONDS = 5.0


class EngineHost:
    """One engine and all generations that run on it.

    lost: why the engine ended by itself, else empty. on_use: called every few seconds while there is work.
    """

    def __init__(self, *, version_pk: int, config: EngineConfig, socket_dir: Path,
                 on_lost: Callable[[], None]) -> None:
        self.lost = ""
        self.mode = config.mode
        self._version_pk = version_pk
        self._on_lost = on_lost
        self._closing = threading.Event()
        self._serving = False
        self._stats_at = 0.0
        self._experts_at = 0.0
        self._used_at, self._steps = 0.0, 0
        self.on_use: Callable[[], object] = lambda: None
        self._pump = Pump(cancel=self._cancel)
        self._engine = EngineProcess.start(config, socket_dir=socket_dir, on_frame=self._on_frame,
                                           on_lost=self._engine_lost)

    def wait_ready(self, *, timeout: float, on_loading: Callable[[Loading], None]) -> Ready:
        """Wait until the engine takes requests. Raises inference.client.EngineLoadError."""
        ready = self._engine.wait_ready(timeout, on_loading)
        self._pump.start()
        self._serving = True
        if self.lost:
            raise EngineDiedError(self.lost)
        threading.Thread(target=self._hear_stops, name="stops", daemon=True).start()
        return ready

    def load_adapter(self, adapter: Version) -> None:
        """Load an adapter beside the model, under its name. Raises inference.client.AdapterRefusedError."""
        self._engine.load_adapter(str(adapter), version_folder(adapter))

    def run(self, pk: str) -> None:
        """Claim a generation and see it through; returns at once when there is nothing to do for it."""
        row = Generation.objects.filter(pk=pk, state=GenerationState.QUEUED).values_list("attempt").first()
        if row is None or self._closing.is_set():
            return
        generation = generation_claim(pk=pk, attempt=row[0], mode=self.mode)
        if generation is None:
            return
        track = Track(generation)
        if not self._pump.admit(track):
            generation_release(generation)
            return
        self._submit(track)
        connections.close_all()  # nothing to ask the database while waiting
        track.over.wait()

    def run_pooled(self, job_id: str) -> None:
        """Have the engine embed or score what a job holds, beside whatever other jobs it has."""
        if self._closing.is_set():
            pooled_dispatch_again(job_id, version=self._version_pk)
            return
        pooled_run(job_id, pool=self._engine.pool)

    def _submit(self, track: Track) -> None:
        row = track.generation
        try:
            if row.stop_requested:
                self._pump.put(StopAsked(track.pk))
            self._engine.submit(Submit(request_id=track.request_id, prompt_ids=row.prompt_ids,
                                       params=msgspec.convert(row.params, SamplingParams), output_ids=row.output_ids,
                                       adapter=str(row.adapter) if row.adapter_id else ""))
        except EngineLostError:
            logger.info("the engine went away before it took generation %s", track.pk)  # the pump will release it
        except msgspec.ValidationError as error:
            self._pump.put(Rejected(request_id=track.request_id, reason=f"Its parameters can't be read: {error}"))

    def _cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    def _on_frame(self, frame: EngineFrame) -> None:
        if isinstance(frame, StepOutput | Rejected):
            self._pump.put(frame)

    def _engine_lost(self, reason: str) -> None:
        if self._closing.is_set():
            return
        self.lost = reason
        if not self._serving:
            return  # whoever waits for it to be ready gets the reason
        self._pump.drain(interrupted_by=self.lost)
        self._on_lost()

    def _hear_stops(self) -> None:
        """Pass stop messages on until closing; one that is missed is found in the row."""
        while not self._closing.is_set():
            try:
                with stream_client().pubsub(ignore_subscribe_messages=True) as ear:
                    ear.subscribe(stop_channel(self._version_pk))
                    while not self._closing.is_set():
                        message = ear.get_message(timeout=STATS_SECONDS)
                        if message is not None:
                            self._hear_stop(str(message["data"]))
                        self._publish_stats()
            except redis.RedisError as error:
                logger.warning("stop messages wait for Valkey: %s", error)
                time.sleep(1.0)

    def _hear_stop(self, wanted: str) -> None:
        if wanted.startswith(STOP_POOLED):
            self._cancel(wanted.removeprefix(STOP_POOLED))
        else:
            self._pump.put(StopAsked(wanted))

    def _publish_stats(self) -> None:
        """Say about once a second what the engine is doing. Raises redis.RedisError."""
        if time.monotonic() < self._stats_at:
            return
        self._stats_at = time.monotonic() + STATS_SECONDS
        with suppress(EngineLostError, TimeoutError):
            wants_experts = time.monotonic() >= self._experts_at
            stats = self._engine.stats(experts=wants_experts)
            if wants_experts:  # a model that has none is not asked again
                self._experts_at = time.monotonic() + EXPERTS_EVERY if stats.experts else math.inf
            self._note_use(bool(stats.running or stats.waiting), steps=stats.steps)
            engine_stats_publish(version_pk=self._version_pk, engine=str(self._engine.pid), stats=stats)

    def _note_use(self, busy: bool, *, steps: int) -> None:
        """Say that there is, or was since the last time, work; at most every USE_SECONDS."""
        if (busy or steps != self._steps) and time.monotonic() - self._used_at > USE_SECONDS:
            self._used_at, self._steps = time.monotonic(), steps
            with suppress(DatabaseFailure):
                self.on_use()
            connections.close_all()

    def begin_closing(self) -> None:
        """Release everything at once, orderly; only sets flags, so a signal handler may call it."""
        self._closing.set()
        self._pump.drain()

    def close(self) -> None:
        """Wait for the releases, queue them anew for the next worker, and end the engine."""
        self.begin_closing()
        self._pump.join(timeout=DRAIN_SECONDS + 2)
        for pk, version_pk in self._pump.released:
            generation_dispatch(pk=pk, version_pk=version_pk, resumed=True)
        self._engine.stop()
