"""A socket lasts no longer than the session that opened it."""

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from tests.webapp.chat.conftest import Socket
from webapp.chat.models import Conversation, Message

pytestmark = pytest.mark.django_db(transaction=True)

CLOSED = {"type": "websocket.close", "code": 4401}


async def test_signing_out_closes_the_sessions_sockets_and_no_others(page: Client, ada: User) -> None:
    elsewhere = Client()
    await sync_to_async(elsewhere.force_login)(ada)
    async with Socket(page) as here, Socket(page) as beside, Socket(elsewhere) as there:
        await sync_to_async(page.post)("/accounts/logout/")
        assert await here.receive_output(timeout=5) == CLOSED
        assert await beside.receive_output(timeout=5) == CLOSED
        assert await there.ask(type="ping") == {"type": "pong"}


async def test_a_closed_account_sends_nothing_more(page: Client, conversation: Conversation) -> None:
    async with Socket(page) as socket:
        await User.objects.aupdate(is_active=False)
        await socket.send_json_to({"type": "message.send", "conversation": str(conversation.pk), "parent": None,
                                   "text": "Hello"})
        assert await socket.receive_output(timeout=5) == CLOSED
    assert not await Message.objects.aexists()


async def test_a_stale_session_cookie_is_not_signed_in(page: Client, ada: User) -> None:
    await sync_to_async(ada.set_password)("another long pass phrase")
    await ada.asave()
    socket = Socket(page)
    assert await socket.connect() == (True, None)
    assert await socket.receive_output() == CLOSED


async def test_another_sites_page_cannot_open_a_socket(page: Client) -> None:
    socket = Socket(page)
    socket.scope["headers"] = [(name, b"https://evil.example" if name == b"origin" else value)
                               for name, value in socket.scope["headers"]]
    connected, _ = await socket.connect()
    assert not connected


async def test_frames_after_the_close_do_nothing() -> None:
    socket = Socket(None)
    await socket.connect()
    await socket.receive_output()
    await socket.send_json_to({"type": "ping"})
    assert await socket.receive_nothing(timeout=0.2)
