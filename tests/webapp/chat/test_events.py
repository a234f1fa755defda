"""Changes are told to open pages from any thread, and telling them leaves nothing behind and breaks nothing."""

import asyncio
from urllib.parse import urlencode

import pytest
from asgiref.sync import sync_to_async
from channels.testing import HttpCommunicator
from django.test import Client, override_settings

from tests.webapp.chat.conftest import Socket
from webapp.chat.models import Conversation
from webapp.config.asgi import application
from webapp.serving.streams import stream_client

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "a" * 32


async def post(page: Client, address: str, **fields: str) -> int:
    """Post through the ASGI application, which gives each request a thread of its own, as Daphne's does."""
    cookies = f"sessionid={page.cookies['sessionid'].value}; csrftoken={TOKEN}"
    headers = [(b"host", b"localhost"), (b"cookie", cookies.encode()), (b"x-csrftoken", TOKEN.encode()),
               (b"content-type", b"application/x-www-form-urlencoded")]
    request = HttpCommunicator(application, "POST", address, body=urlencode(fields).encode(), headers=headers)
    return int((await request.get_response(timeout=10))["status"])


async def connections() -> int:
    await asyncio.sleep(0.1)
    return len(await sync_to_async(stream_client().client_list)())


async def test_telling_open_pages_leaves_no_connection_behind(page: Client, conversation: Conversation) -> None:
    async with Socket(page) as socket:
        address = f"/c/{conversation.pk}/rename/"
        assert await post(page, address, title="first") == 200
        before = await connections()
        for number in range(8):
            assert await post(page, address, title=f"no. {number}") == 200
        assert await connections() == before
        titles = [(await socket.next())["conversation"]["title"] for _ in range(9)]
        assert titles == ["first", *(f"no. {number}" for number in range(8))]


def test_a_change_is_kept_though_redis_is_away(page: Client, conversation: Conversation,
                                               caplog: pytest.LogCaptureFixture) -> None:
    layers = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
                          "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]}}}
    with override_settings(CHANNEL_LAYERS=layers):
        assert page.post(f"/c/{conversation.pk}/rename/", {"title": "New"}).status_code == 200
    conversation.refresh_from_db()
    assert conversation.title == "New"
    assert "were not told" in caplog.text
