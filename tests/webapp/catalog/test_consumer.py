"""The socket of the registry's pages: parts come when they change, and stop for who may not see them any more."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from registry.models import Deployment, Model
from tests.webapp.catalog.conftest import Socket
from webapp.catalog import consumer

pytestmark = pytest.mark.django_db(transaction=True)
WATCH: dict[str, Any] = {"type": "watch", "page": "version", "args": {"name": "paper", "number": "1"}}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "TICK_S", 0.05)


async def test_without_signing_in_the_socket_closes_with_4401() -> None:
    socket = Socket(None)
    assert await socket.connect() == (True, None)
    assert await socket.receive_output() == {"type": "websocket.close", "code": 4401}


async def test_parts_come_at_first_and_then_only_when_they_change(page: Client, paper: Model) -> None:
    async with Socket(page) as socket:
        frame = await socket.ask(**WATCH)
        assert frame["type"] == "parts"
        assert set(frame["parts"]) == {"version_head", "deployments", "experts", "checks", "history"}
        version = await paper.versions.aget(number=1)
        await Deployment.objects.acreate(version=version, state="failed", reason="no room")
        frame = await socket.next()
        assert set(frame["parts"]) == {"deployments"}
        assert "Failed to load" in frame["parts"]["deployments"]
        assert "no room" not in frame["parts"]["deployments"]  # reasons are for administrators
        assert await socket.receive_nothing(timeout=0.2)


async def test_a_page_that_its_viewer_may_not_see_any_more_is_gone(page: Client, paper: Model) -> None:
    async with Socket(page) as socket:
        await socket.ask(**WATCH)
        await Model.objects.filter(pk=paper.pk).aupdate(access="administrators")
        assert await socket.next() == {"type": "gone"}


async def test_what_was_never_there_is_gone_at_once(page: Client, paper: Model) -> None:
    async with Socket(page) as socket:
        for args in ({"name": "missing", "number": "1"}, {"name": "paper", "number": "x"}, {}):
            assert await socket.ask(type="watch", page="version", args=args) == {"type": "gone"}
        assert await socket.ask(type="watch", page="import", args={"pk": "x"}) == {"type": "gone"}


@pytest.mark.parametrize("how", ["out", "inactive"])
async def test_a_socket_ends_with_its_session(page: Client, ada: User, paper: Model, how: str) -> None:
    async with Socket(page) as socket:
        await socket.ask(**WATCH)
        if how == "out":
            await sync_to_async(page.logout)()
        else:
            await User.objects.filter(pk=ada.pk).aupdate(is_active=False)
        assert await socket.receive_output(timeout=5) == {"type": "websocket.close", "code": 4401}


async def test_other_frames_get_an_error_and_the_socket_stays(page: Client) -> None:
    bad: list[Any] = [[], 1, {"type": "x"}, {"type": "watch"}, {"type": "watch", "page": "admin", "args": {}},
                      {"type": "watch", "page": "list", "args": {"q": 1}},
                      {"type": "watch", "page": ["list"], "args": {}}]
    async with Socket(page) as socket:
        for frame in bad:
            await socket.send_json_to(frame)
            assert (await socket.next())["type"] == "error"
        await socket.send_to(text_data="{" * 2000)
        assert (await socket.next())["type"] == "error"
        await socket.send_to(text_data='"' + "x" * 5000 + '"')
        assert (await socket.next())["type"] == "error"
        assert await socket.ask(type="ping") == {"type": "pong"}


async def test_every_live_page_renders(admin_page: Client, paper: Model) -> None:
    async with Socket(admin_page) as socket:
        for page_name, args in (("list", {"q": "paper"}), ("model", {"name": "paper"}), ("workers", {})):
            frame = await socket.ask(type="watch", page=page_name, args=args)
            assert frame["type"] == "parts"
