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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from inference.connections import Arrival, FrameServer
from inference.encoders.kind import engine_kind
from inference.protocol import LoadFailed, Loading, LoadPhase, Ready
from inference.service import ChatService, PoolingService
from inference.spec import EngineConfig

if TYPE_CHECKING:
    from inference.engine.loading import LoadedEngine
    from inference.engine.pooling_loading import LoadedPooling

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 0.05
WAIT_FOR_CLIENT_S = 10.0

Load = Callable[..., "LoadedEngine | LoadedPooling"]
"""`_load_engine(config, on_progress=…)`; tests put a small engine in its place."""


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


def _load_engine(config: EngineConfig, *, on_progress: Callable[[LoadPhase, int, int], None]
                 ) -> "LoadedEngine | LoadedPooling":
    kind = config.kind or engine_kind(Path(config.model))
    if kind != "chat":
        from inference.engine.pooling_loading import load_pooling

        return load_pooling(config, kind, on_progress=on_progress)
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
    try:
        _serve(config, engine, frames, inbox)
    finally:
        frames.close()
    return 0


def _serve(config: EngineConfig, engine: "LoadedEngine | LoadedPooling", frames: FrameServer,
           inbox: "queue.SimpleQueue[Arrival]") -> None:
    """Say what is ready and serve it until a client sends Shutdown."""
    from inference.engine.freed_memory import give_back_freed_memory
    from inference.engine.pooling_loop import PoolingLoop

    give_back_freed_memory()
    if isinstance(engine.loop, PoolingLoop):
        frames.announce(_pooling_ready(config, engine))
        PoolingService(engine.loop, frames, inbox).run()
    else:
        frames.announce(_ready(config, engine))
        ChatService(engine.loop, frames, inbox).run()


def _ready(config: EngineConfig, engine: "LoadedEngine") -> Ready:
    scheduler = engine.loop.scheduler
    return Ready(
        mode=engine.mode, notes=list(engine.notes), max_model_len=engine.max_model_len,
        max_num_seqs=config.max_num_seqs,
        block_size=scheduler.block_size, num_blocks=scheduler.pool.num_blocks, weights_bytes=engine.weights_bytes,
        kv_cache_bytes=engine.kv_cache_bytes, load_seconds=engine.load_seconds, pid=os.getpid(),
    )


def _pooling_ready(config: EngineConfig, engine: "LoadedPooling") -> Ready:
    model = engine.loop.model
    return Ready(
        kind=model.kind, outputs=list(model.outputs), embedding_size=model.embedding_size, methods=list(model.methods),
        mode=engine.mode, notes=list(engine.notes), max_model_len=engine.max_model_len,
        max_num_seqs=config.max_num_seqs, block_size=0, num_blocks=0, weights_bytes=engine.weights_bytes,
        kv_cache_bytes=0, load_seconds=engine.load_seconds, pid=os.getpid(),
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


if __name__ == "__main__":
    sys.exit(main())
