"""What an engine process does between loading and its end: frames in, steps, frames out, for each kind of engine."""

import queue
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from inference.artifacts.errors import ArtifactError
from inference.connections import Arrival, FrameServer
from inference.outbox import Outbox
from inference.protocol import (
    AdapterChanged,
    Cancel,
    ClientFrame,
    Embed,
    LoadAdapter,
    PooledFrame,
    Rejected,
    Score,
    Shutdown,
    Stats,
    StatsRequest,
    Submit,
    UnloadAdapter,
)
from inference.spec import SpecError

if TYPE_CHECKING:
    from inference.engine.loop import EngineLoop
    from inference.engine.pooling_loop import PoolingLoop

CHECK_AFTER_IDLE_S = 1.0


class Service(ABC):
    """Takes clients' frames between steps and sends each client what a step brought for its requests."""

    def __init__(self, frames: FrameServer, inbox: "queue.SimpleQueue[Arrival]") -> None:
        self._frames = frames
        self._inbox = inbox
        self._owners: dict[str, int] = {}  # request id → connection

    def run(self) -> None:
        """Serve until a client sends Shutdown."""
        while self._take_arrivals():
            if self._has_work():
                self._step()

    @abstractmethod
    def _has_work(self) -> bool:
        """Whether a step would do something."""

    @abstractmethod
    def _step(self) -> None:
        """Run one step and send what it brought."""

    @abstractmethod
    def _submit(self, frame: Submit | Embed | Score) -> None:
        """Queue a request. Raises SpecError for one that can't be served."""

    @abstractmethod
    def _cancel(self, request_id: str) -> None:
        """End a request that is queued or running."""

    @abstractmethod
    def _stats(self, asked: StatsRequest) -> Stats:
        """Return the engine's counts."""

    def _change_adapter(self, asked: LoadAdapter | UnloadAdapter) -> AdapterChanged:
        """Load or unload a LoRA adapter."""
        return AdapterChanged(request_key=asked.request_key, name=asked.name, error="this model takes no adapters")

    def _idle(self) -> None:  # noqa: B027 - most kinds have nothing to check
        """Called once when there has been nothing to do for a while."""

    def _take_arrivals(self) -> bool:
        """Handle everything that has arrived; wait for something while there is nothing to do. False: shut down."""
        checked = False
        while True:
            try:
                if self._has_work():
                    connection, frame = self._inbox.get_nowait()
                else:
                    connection, frame = self._inbox.get(timeout=None if checked else CHECK_AFTER_IDLE_S)
            except queue.Empty:
                if self._has_work():
                    return True
                self._idle()
                checked = True
                continue
            if isinstance(frame, Shutdown):
                return False
            self._handle(connection, frame)

    def _handle(self, connection: int, frame: ClientFrame | None) -> None:
        match frame:
            case Submit() | Embed() | Score():
                self._take(connection, frame)
            case Cancel(request_id=request_id):
                if self._owners.get(request_id) == connection:
                    self._cancel(request_id)
            case LoadAdapter() | UnloadAdapter():
                self._frames.send(connection, self._change_adapter(frame))
            case StatsRequest():
                self._frames.send(connection, self._stats(frame))
            case None:  # the client is gone: nobody wants its replies
                for request_id in [name for name, owner in self._owners.items() if owner == connection]:
                    self._cancel(request_id)

    def _take(self, connection: int, frame: Submit | PooledFrame) -> None:
        try:
            self._submit(frame)
        except SpecError as error:
            rejected = Rejected(request_id=frame.request_id, reason=error.message, field=error.field)
            self._frames.send(connection, rejected)
        else:
            self._owners[frame.request_id] = connection


class ChatService(Service):
    """Serves a decoder's loop: Submit in, StepOutputs with what the last few steps brought out."""

    def __init__(self, engine: "EngineLoop", frames: FrameServer, inbox: "queue.SimpleQueue[Arrival]") -> None:
        super().__init__(frames, inbox)
        self._engine = engine
        self._outbox = Outbox(frames.send)

    def _has_work(self) -> bool:
        return self._engine.has_work

    def _submit(self, frame: Submit | Embed | Score) -> None:
        if not isinstance(frame, Submit):
            raise SpecError("model", "writes replies; it does not embed or score")
        self._engine.submit(frame)

    def _cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    def _stats(self, asked: StatsRequest) -> Stats:
        return self._engine.stats(asked.request_key, experts=asked.experts)

    def _change_adapter(self, asked: LoadAdapter | UnloadAdapter) -> AdapterChanged:
        digest = ""
        try:
            if isinstance(asked, LoadAdapter):
                digest = self._engine.adapters.load(asked.name, Path(asked.path)).hex()
            else:
                self._engine.adapters.unload(asked.name)
        except (ArtifactError, SpecError) as error:
            return AdapterChanged(request_key=asked.request_key, name=asked.name, error=str(error))
        return AdapterChanged(request_key=asked.request_key, name=asked.name, digest=digest)

    def _idle(self) -> None:
        self._engine.scheduler.check_integrity()

    def _step(self) -> None:
        for delta in self._engine.step().deltas:
            self._outbox.add(self._owners[delta.request_id], delta)
            if delta.finish_reason is not None:
                del self._owners[delta.request_id]
        self._outbox.send_due()


class PoolingService(Service):
    """Serves a loop that embeds or scores: Embed and Score in, one answer a request out."""

    def __init__(self, engine: "PoolingLoop", frames: FrameServer, inbox: "queue.SimpleQueue[Arrival]") -> None:
        super().__init__(frames, inbox)
        self._engine = engine

    def _has_work(self) -> bool:
        return self._engine.has_work

    def _submit(self, frame: Submit | Embed | Score) -> None:
        if isinstance(frame, Submit):
            raise SpecError("model", "embeds or scores texts; it does not write replies")
        self._engine.submit(frame)

    def _cancel(self, request_id: str) -> None:
        failed = self._engine.cancel(request_id)
        if failed is not None:
            self._frames.send(self._owners.pop(request_id), failed)

    def _stats(self, asked: StatsRequest) -> Stats:
        return self._engine.stats(asked.request_key)

    def _step(self) -> None:
        for reply in self._engine.step():
            self._frames.send(self._owners.pop(reply.request_id), reply)
