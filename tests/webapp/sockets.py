"""A page's WebSocket in tests: on the site's ASGI application, with the cookies of a signed-in client."""

from typing import Any, ClassVar, Self

from channels.testing import WebsocketCommunicator
from django.test import Client

from webapp.config.asgi import application


class PageSocket(WebsocketCommunicator):
    """A connection to `path` that closes when its block ends; None is a visitor."""

    path: ClassVar[str]

    def __init__(self, client: Client | None) -> None:
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items()) if client else ""
        headers = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookies.encode())]
        super().__init__(application, self.path, headers=headers)

    async def __aenter__(self) -> Self:
        connected, _ = await self.connect(timeout=5)
        assert connected
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect(timeout=5)

    async def ask(self, **frame: Any) -> dict[str, Any]:
        """Send a frame and return the next one that comes."""
        await self.send_json_to(frame)
        return await self.next()

    async def next(self, *, within: float = 5) -> dict[str, Any]:
        frame: dict[str, Any] = await self.receive_json_from(timeout=within)
        return frame
