"""The engine's process: `python -m inference.server --socket PATH --config JSON` serves one loaded model.

It listens before it loads, so that a client sees the progress, and ends when its standard input, the parent's pipe,
reaches its end: an engine never outlives its parent.
"""

import argparse
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from inference.connections import Arrival, FrameServer
from inference.protocol import (
    Cancel,
    ClientFrame,
    LoadFailed,
    Loading,
    LoadPhase,
    Ready,
    Rejected,
    SequenceDelta,
    Shutdown,
    StatsRequest,
    StepOutput,
    Submit,
)
from inference.spec import EngineConfig, SpecError

if TYPE_CHECKING:
    from inference.engine.loading import LoadedEngine
    from inference.engine.loop import EngineLoop

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 0.05
CHECK_AFTER_IDLE_S = 1.0
WAIT_FOR_CLIENT_S = 10.0

Load = Callable[..., "LoadedEngine"]
"""`load_engine(config, on_progress=…)`; tests put a small engine in its place."""


def main(arguments: list[str] | None = None, *, load: Load | None = None) -> int:
    """Serve until told to stop. Returns the exit status: 0 after Shutdown, 1 when loading failed, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="inference.server", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="path of the Unix socket to listen on")
    parser.add_argument("--config", required=True, help="EngineConfig as JSON")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s engine[%(process)d] %(levelname)s %(message)s")
    try:
        config = msgspec.json.decode(options.config, type=EngineConfig)
    except msgspec.MsgspecError as error:
        print(f"--config: {error}", file=sys.stderr)
        return 2
    inbox: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
    try:
        frames = FrameServer(options.socket, inbox)
    except OSError as error:
        print(f"--socket: can't listen on {options.socket}: {error}", file=sys.stderr)
        return 2
    threading.Thread(target=_end_with_parent, args=(frames,), name="parent", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        return _load_and_serve(config, frames, inbox, load or _load_engine)
    finally:
        frames.remove_socket()


def _load_engine(config: EngineConfig, *, on_progress: Callable[[LoadPhase, int, int], None]) -> "LoadedEngine":
    from inference.engine.loading import load_engine  # numba: only after the socket can be connected to

    return load_engine(config, on_progress=on_progress)


def _end_with_parent(frames: FrameServer) -> None:
    """Wait for the end of standard input and leave at once, whatever the other threads do."""
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    frames.remove_socket()
    os._exit(0)


def _load_and_serve(config: EngineConfig, frames: FrameServer, inbox: "queue.SimpleQueue[Arrival]", load: Load) -> int:
    try:
        engine = load(config, on_progress=_Progress(frames))
    except Exception as error:  # whatever a damaged model provokes is the reason for not loading it
        logger.info("Loading %s failed", config.model, exc_info=not isinstance(error, ValueError))
        reason = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        frames.announce(LoadFailed(reason=reason))
        frames.close(wait_for_client=WAIT_FOR_CLIENT_S)
        return 1
    frames.announce(_ready(config, engine))
    try:
        Service(engine.loop, frames, inbox).run()
    finally:
        frames.close()
    return 0


def _ready(config: EngineConfig, engine: "LoadedEngine") -> Ready:
    scheduler = engine.loop.scheduler
    return Ready(
        mode=config.mode, max_model_len=engine.max_model_len, max_num_seqs=config.max_num_seqs,
        block_size=scheduler.block_size, num_blocks=scheduler.pool.num_blocks, weights_bytes=engine.weights_bytes,
        kv_cache_bytes=engine.kv_cache_bytes, load_seconds=engine.load_seconds, pid=os.getpid(),
    )


class _Progress:
    """Announces progress of loading: each phase's start and end, and in between at most every PROGRESS_INTERVAL_S."""

    def __init__(self, frames: FrameServer) -> None:
        self._frames = frames
        self._phase: LoadPhase | None = None
        self._next = 0.0

    def __call__(self, phase: LoadPhase, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase or done >= total or now >= self._next:
            self._phase, self._next = phase, now + PROGRESS_INTERVAL_S
            self._frames.announce(Loading(phase=phase, done=done, total=total))


class Service:
    """Takes clients' frames between steps and sends each client what a step brought for its requests."""

    def __init__(self, engine: "EngineLoop", frames: FrameServer, inbox: "queue.SimpleQueue[Arrival]") -> None:
        self._engine = engine
        self._frames = frames
        self._inbox = inbox
        self._owners: dict[str, int] = {}  # request id → connection

    def run(self) -> None:
        """Serve until a client sends Shutdown."""
        while self._take_arrivals():
            if self._engine.has_work:
                self._send(self._engine.step())

    def _take_arrivals(self) -> bool:
        """Handle everything that has arrived; wait for something while there is nothing to do. False: shut down."""
        checked = False
        while True:
            try:
                if self._engine.has_work:
                    connection, frame = self._inbox.get_nowait()
                else:
                    connection, frame = self._inbox.get(timeout=None if checked else CHECK_AFTER_IDLE_S)
            except queue.Empty:
                if self._engine.has_work:
                    return True
                self._engine.scheduler.check_integrity()
                checked = True
                continue
            if isinstance(frame, Shutdown):
                return False
            self._handle(connection, frame)

    def _handle(self, connection: int, frame: ClientFrame | None) -> None:
        match frame:
            case Submit():
                self._submit(connection, frame)
            case Cancel(request_id=request_id):
                if self._owners.get(request_id) == connection:
                    self._engine.cancel(request_id)
            case StatsRequest(request_key=key):
                self._frames.send(connection, self._engine.stats(key))
            case None:  # the client is gone: nobody wants its replies
                for request_id in [name for name, owner in self._owners.items() if owner == connection]:
                    self._engine.cancel(request_id)

    def _submit(self, connection: int, submit: Submit) -> None:
        try:
            self._engine.submit(submit)
        except SpecError as error:
            rejected = Rejected(request_id=submit.request_id, reason=error.message, field=error.field)
            self._frames.send(connection, rejected)
        else:
            self._owners[submit.request_id] = connection

    def _send(self, output: StepOutput) -> None:
        by_owner: dict[int, list[SequenceDelta]] = defaultdict(list)
        for delta in output.deltas:
            by_owner[self._owners[delta.request_id]].append(delta)
            if delta.finish_reason is not None:
                del self._owners[delta.request_id]
        for connection, deltas in by_owner.items():
            self._frames.send(connection, StepOutput(deltas=deltas))


if __name__ == "__main__":
    sys.exit(main())
