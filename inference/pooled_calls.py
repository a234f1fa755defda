"""The client's side of Embed and Score: one future a request, settled by the engine's answer or by its loss."""

import threading
from concurrent.futures import Future

from inference.protocol import Embedded, EngineFrame, PooledFrame, PooledReply, PoolingFailed, Rejected, Scored


class RequestRejectedError(ValueError):
    """The engine did not take the request. `field` names what was wrong; the message is written for people."""

    def __init__(self, reason: str, field: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field


class PoolingFailedError(RuntimeError):
    """The engine took the request and could not answer it; `cancelled` when somebody asked for its end."""

    def __init__(self, reason: str, *, cancelled: bool) -> None:
        super().__init__(reason)
        self.cancelled = cancelled


class PooledCalls:
    """Open requests by id. Methods may be called from any thread; callbacks of futures run on the settling thread."""

    def __init__(self) -> None:
        self._open: dict[str, Future[PooledReply]] = {}
        self._lock = threading.Lock()

    def open(self, frame: PooledFrame) -> "Future[PooledReply]":
        """Return the future of a request that is about to be sent. Raises ValueError when its id is open already."""
        future: Future[PooledReply] = Future()
        future.set_running_or_notify_cancel()  # a call ends through the engine alone: see EngineProcess.cancel
        with self._lock:
            if frame.request_id in self._open:
                raise ValueError(f"request {frame.request_id} is open already")
            self._open[frame.request_id] = future
        return future

    def forget(self, request_id: str) -> None:
        """Drop a request that could not be sent."""
        with self._lock:
            self._open.pop(request_id, None)

    def settle(self, frame: EngineFrame) -> bool:
        """Settle the future that the frame answers. False: the frame is none of ours."""
        if not isinstance(frame, Embedded | Scored | PoolingFailed | Rejected):
            return False
        with self._lock:
            future = self._open.pop(frame.request_id, None)
        if future is None:
            return not isinstance(frame, Rejected)  # an answer to nobody is dropped; a refusal may be a Submit's
        match frame:
            case Rejected(reason=reason, field=field):
                future.set_exception(RequestRejectedError(reason, field))
            case PoolingFailed(reason=reason, cancelled=cancelled):
                future.set_exception(PoolingFailedError(reason, cancelled=cancelled))
            case _:
                future.set_result(frame)
        return True

    def fail_all(self, error: Exception) -> None:
        """End every open request with the error: the engine is gone."""
        with self._lock:
            futures, self._open = list(self._open.values()), {}
        for future in futures:
            future.set_exception(error)
