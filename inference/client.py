"""A parent's handle on an engine process: starts it, talks frames with it, and says once when it is lost."""

import contextlib
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Self, cast

from inference.launching import launch, socket_path
from inference.pooled_calls import PooledCalls
from inference.protocol import (
    HEADER,
    MAX_FRAME_BYTES,
    AdapterChanged,
    Cancel,
    ClientFrame,
    EngineFrame,
    LoadAdapter,
    LoadFailed,
    Loading,
    PooledFrame,
    PooledReply,
    Ready,
    Shutdown,
    Stats,
    StatsRequest,
    Submit,
    UnloadAdapter,
    decode_engine_frame,
    encode,
)
from inference.questions import Questions
from inference.spec import EngineConfig

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 30.0
STDERR_LINES = 20


class EngineLoadError(Exception):
    """The engine could not load its model, or ended while loading; the message is the reason in words."""


class EngineDiedError(EngineLoadError):
    """The engine ended while loading without saying why: it may have been killed, and may load when tried again."""


class AdapterRefusedError(Exception):
    """A LoRA adapter could not be loaded or unloaded; the message is the reason in words."""


class EngineLostError(ConnectionError):
    """The engine process is gone, so nothing can be sent to it."""


class EngineProcess:
    """One engine process, a child of this one. It ends when this process does, or at `stop`.

    on_frame gets StepOutput and Rejected frames on one reader thread, in order; Loading, Ready and LoadFailed go to
    `wait_ready` and Stats to `stats`. on_lost is called once, on the same thread and after the last frame, when the
    process dies or the connection breaks without `stop`, also while loading. Methods may be called from any thread.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", path: Path, *, on_frame: Callable[[EngineFrame], None],
                 on_lost: Callable[[str], None]) -> None:
        self._process = process
        self._path = path
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._loading: deque[Loading] = deque()
        self._ready: Ready | None = None
        self._lost: str | None = None
        self._load_failed = False
        self._questions = Questions()
        self._pooled = PooledCalls()
        self._stopping = False
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._stderr_reader = threading.Thread(target=self._copy_stderr, name="engine-stderr", daemon=True)
        self._reader = threading.Thread(target=self._read, name="engine-frames", daemon=True)

    @classmethod
    def start(cls, config: EngineConfig, *, socket_dir: Path, on_frame: Callable[[EngineFrame], None],
              on_lost: Callable[[str], None], module: str = "inference.server") -> Self:
        """Start the process and return at once; it loads by itself.

        socket_dir: a folder for the socket, made private if it has to be made. module: what `python -m` runs.
        """
        path = socket_path(socket_dir)
        process = launch(config, path, module=module)
        engine = cls(process, path, on_frame=on_frame, on_lost=on_lost)
        engine._stderr_reader.start()
        engine._reader.start()
        return engine

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self, timeout: float, on_loading: Callable[[Loading], None] | None = None) -> Ready:
        """Wait until the engine takes requests, passing its progress on. Raises EngineLoadError (EngineDiedError)."""
        deadline = time.monotonic() + timeout
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._loading or self._ready or self._lost,
                                       max(0.0, deadline - time.monotonic()))
                frame = self._loading.popleft() if self._loading else None
                if frame is None:
                    if self._lost is not None:
                        raise (EngineLoadError if self._load_failed else EngineDiedError)(self._lost)
                    if self._ready is not None:
                        return self._ready
                    raise EngineLoadError(f"the engine was not ready within {timeout:g} s")
            if on_loading is not None:
                on_loading(frame)

    def submit(self, submit: Submit) -> None:
        """Send a request. Raises EngineLostError when the process is gone."""
        self._send(submit)

    def pool(self, frame: PooledFrame) -> "Future[PooledReply]":
        """Send an Embed or Score and return the future of its Embedded or Scored.

        The future ends with RequestRejectedError, PoolingFailedError (`cancel` ends it so) or EngineLostError. Its
        callbacks run on the reader thread. Raises EngineLostError when the process is gone already.
        """
        future = self._pooled.open(frame)
        try:
            self._send(frame)
        except EngineLostError:
            self._pooled.forget(frame.request_id)
            raise
        return future

    def cancel(self, request_id: str) -> None:
        """Ask for a request's end; nothing happens when it, or the engine, has ended already."""
        with contextlib.suppress(EngineLostError):
            self._send(Cancel(request_id))

    def stats(self, timeout: float = 10.0, *, experts: bool = False) -> Stats:
        """Ask for the engine's counts. experts: with the load of each expert.

        Raises EngineLostError, or TimeoutError after `timeout` seconds.
        """
        return cast(Stats, self._questions.ask(lambda key: StatsRequest(key, experts), self._send, timeout))

    def load_adapter(self, name: str, folder: Path, timeout: float = 120.0) -> str:
        """Load a LoRA adapter under a name that requests may give; return the hash of its content, in hex.

        Raises AdapterRefusedError with the reason, EngineLostError, or TimeoutError after `timeout` seconds.
        """
        return self._change_adapter(lambda key: LoadAdapter(key, name, str(folder)), timeout)

    def unload_adapter(self, name: str, timeout: float = 10.0) -> None:
        """Let no new request name an adapter. Raises as `load_adapter` does."""
        self._change_adapter(lambda key: UnloadAdapter(key, name), timeout)

    def _change_adapter(self, make: Callable[[int], ClientFrame], timeout: float) -> str:
        changed = cast(AdapterChanged, self._questions.ask(make, self._send, timeout))
        if changed.error:
            raise AdapterRefusedError(changed.error)
        return changed.digest

    def stop(self, timeout: float = 5.0) -> None:
        """End the process: ask it, close its pipe, and kill it if it is still there after `timeout` seconds."""
        self._stopping = True
        with contextlib.suppress(EngineLostError):
            self._send(Shutdown())
        self._reap(timeout)
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout)

    def _reap(self, timeout: float) -> int:
        """Wait for the process and clean up behind it; returns its exit status."""
        try:
            if self._socket is not None:  # it was told to end, or it ended the connection
                self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            logger.warning("Engine %d did not end by itself", self.pid)
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._path.unlink(missing_ok=True)
        self._stderr_reader.join(1.0)
        return status

    def _send(self, frame: ClientFrame) -> None:
        data = encode(frame)
        with self._sending:
            if self._socket is None or self._lost is not None:
                raise EngineLostError(self._lost or "the engine isn't connected yet")
            try:
                self._socket.sendall(data)
            except OSError as error:
                raise EngineLostError(f"the engine can't be reached: {error}") from error

    def _read(self) -> None:
        """Connect, pass frames on until the connection ends, and report the loss unless it was asked for."""
        reason = ""
        try:
            self._socket = self._connect()
            stream = self._socket.makefile("rb")
            while (frame := _read_frame(stream.read)) is not None:
                if isinstance(frame, LoadFailed):
                    reason, self._load_failed = frame.reason, True
                else:
                    self._receive(frame)
        except (OSError, ValueError, EngineLoadError) as error:
            reason = "" if isinstance(error, ConnectionError) else str(error)
        status = self._reap(1.0)
        if self._socket is not None:
            self._socket.close()
        reason = reason or self._death(status)
        with self._changed:
            self._lost = reason
            self._changed.notify_all()
        self._pooled.fail_all(EngineLostError(reason))
        self._questions.fail_all(EngineLostError(reason))
        if not self._stopping:
            self._on_lost(reason)

    def _receive(self, frame: EngineFrame) -> None:
        if isinstance(frame, Stats | AdapterChanged):
            self._questions.settle(frame)
            return
        if isinstance(frame, Loading | Ready):
            with self._changed:
                if isinstance(frame, Loading):
                    self._loading.append(frame)
                else:
                    self._ready = frame
                self._changed.notify_all()
            return
        if self._pooled.settle(frame):
            return
        try:
            self._on_frame(frame)
        except Exception:  # one bad frame must not end the others' replies
            logger.exception("on_frame failed")

    def _connect(self) -> socket.socket:
        """Connect as soon as the engine listens. Raises EngineLoadError when it never does."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(str(self._path))
            except OSError:
                connection.close()
                time.sleep(0.02)
            else:
                return connection
        if self._process.poll() is not None:
            raise ConnectionError
        raise EngineLoadError(f"the engine did not listen within {CONNECT_TIMEOUT_S:g} s")

    def _copy_stderr(self) -> None:
        """Pass the process's messages on to our own standard error and remember the last ones."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace")
            self._stderr.append(text.rstrip())
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(text)
                sys.stderr.flush()
        self._process.stderr.close()

    def _death(self, status: int) -> str:
        how = f"was killed by {_signal_name(-status)}" if status < 0 else f"ended with exit status {status}"
        last = "\n".join(self._stderr)
        return f"the engine {how}" + (f"; its last messages:\n{last}" if last else "")


def _read_frame(read: Callable[[int], bytes]) -> EngineFrame | None:
    """The next frame, None at the end of the connection. Raises ValueError for what is no frame."""
    header = read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"the engine sent a frame of {length} bytes, more than {MAX_FRAME_BYTES}")
    body = read(length)
    return decode_engine_frame(body) if len(body) == length else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
