"""The engine's side of the socket: accepts clients, reads their frames into a queue and writes frames to them."""

import asyncio
import contextlib
import logging
import os
import queue
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from inference.protocol import HEADER, MAX_FRAME_BYTES, ClientFrame, EngineFrame, decode_client_frame, encode

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 64 * 1024 * 1024  # a client that leaves more than this unread is dropped

Arrival = tuple[int, ClientFrame | None]
"""A connection's number and the frame that it sent; None when it is gone."""


class FrameServer:
    """Listens on a Unix socket of mode 0600, in a thread of its own, so that no client can hold up the engine.

    inbox: gets every arrival, in order for each connection. A frame that is too large or can't be read ends its
    connection, with the reason in the log. Every method may be called from any thread.
    """

    def __init__(self, path: Path, inbox: "queue.SimpleQueue[Arrival]") -> None:
        self._path = path
        self._inbox = inbox
        self._listener = _bind(path)
        self._loop = asyncio.new_event_loop()
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._connections = 0
        self._greeting: bytes | None = None
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frames", daemon=True)
        self._thread.start()

    def send(self, connection: int, frame: EngineFrame) -> None:
        """Write a frame to one client; dropped when that client is gone."""
        self._call(self._write, connection, encode(frame))

    def announce(self, frame: EngineFrame) -> None:
        """Write a frame to every client, and first of all to each that connects from now on."""
        self._call(self._write_all, encode(frame))

    def close(self, *, linger: float = 1.0, wait_for_client: float = 0.0) -> None:
        """Write out what is unsent (up to `linger` seconds), end all connections and remove the socket file.

        wait_for_client: seconds to wait for a first client, so that somebody hears the last frame.
        """
        self._connected.wait(wait_for_client)
        with contextlib.suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(self._flush(linger), self._loop).result(linger + 1)
        self.remove_socket()
        self._call(self._loop.stop)
        self._thread.join(timeout=2)

    def remove_socket(self) -> None:
        self._path.unlink(missing_ok=True)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the engine is ending
            self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_unix_server(self._serve, sock=self._listener))
        self._loop.run_forever()

    async def _flush(self, linger: float) -> None:
        for writer in list(self._writers.values()):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(linger):
                    writer.close()
                    await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        self._writers[connection] = writer
        if self._greeting is not None:
            writer.write(self._greeting)
        self._connected.set()
        try:
            while True:
                self._inbox.put((connection, await _read_frame(reader)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (msgspec.MsgspecError, _FrameTooLargeError) as error:
            logger.warning("Ended a connection because of a malformed frame: %s", error)
        finally:
            self._writers.pop(connection, None)
            writer.close()
            self._inbox.put((connection, None))

    def _write(self, connection: int, data: bytes) -> None:
        writer = self._writers.get(connection)
        if writer is None or writer.transport.is_closing():
            return
        writer.write(data)
        unsent = writer.transport.get_write_buffer_size()
        if unsent > MAX_UNSENT_BYTES:
            logger.warning("Dropped a client that left %d bytes unread", unsent)
            writer.transport.abort()

    def _write_all(self, data: bytes) -> None:
        self._greeting = data
        for connection in list(self._writers):
            self._write(connection, data)


class _FrameTooLargeError(ValueError):
    pass


async def _read_frame(reader: asyncio.StreamReader) -> ClientFrame:
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > MAX_FRAME_BYTES:
        raise _FrameTooLargeError(f"{length} bytes, more than {MAX_FRAME_BYTES}")
    return decode_client_frame(await reader.readexactly(length))


def _bind(path: Path) -> socket.socket:
    """Bind a socket that only its owner can open, in a folder that only its owner can enter. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        path.unlink()  # left by an engine that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen()
    return listener
