"""What the socket does with each frame, and that no frame closes it."""

import json
import uuid
from collections.abc import Callable

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from registry.models import Version
from tests.webapp.chat.conftest import Pump, Socket
from tests.webapp.chat.test_frames import MALFORMED
from webapp.chat import answers
from webapp.chat.models import Conversation, Message
from webapp.serving.models import Generation

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def chat(ada: User, demo_version: Version) -> Conversation:
    """Ada's conversation with the demo model, whose tokenizer and template are the real ones."""
    return Conversation.objects.create(owner=ada, version=demo_version)


async def ended(reply: dict[str, object]) -> None:
    await Generation.objects.filter(pk=reply["generation"]["id"]).aupdate(state="done", text="Paris.", output_count=2)  # type: ignore[index]


async def test_without_signing_in_the_socket_closes_with_4401() -> None:
    socket = Socket(None)
    assert await socket.connect() == (True, None)
    assert await socket.receive_output() == {"type": "websocket.close", "code": 4401}


async def test_ping_is_answered_with_its_ref(page: Client) -> None:
    async with Socket(page) as socket:
        assert await socket.ask(type="ping") == {"type": "pong"}
        assert await socket.ask(type="ping", ref="p") == {"type": "pong", "ref": "p"}


async def test_malformed_frames_get_an_error_and_the_socket_stays(page: Client) -> None:
    async with Socket(page) as socket:
        for text, field in MALFORMED.values():
            if text is None:
                await socket.send_input({"type": "websocket.receive", "bytes": b"\x00\xff"})
            else:
                await socket.send_input({"type": "websocket.receive", "text": text})
            frame = await socket.next()
            assert (frame["type"], frame["code"], frame["field"]) == ("error", "bad_frame", field)
        assert await socket.ask(type="ping") == {"type": "pong"}


async def test_a_message_and_its_reply_are_made_shown_and_followed(page: Client, chat: Conversation,
                                                                   pump: Callable[[Message], Pump]) -> None:
    async with Socket(page) as socket:
        frame = await socket.ask(type="message.send", ref="s1", conversation=str(chat.pk), parent=None,
                                 text="What is the capital of France?")
        assert (frame["type"], frame["ref"], frame["conversation"]) == ("message.created", "s1", str(chat.pk))
        asked, reply = frame["user_message"], frame["reply"]
        assert (asked["role"], asked["parent"], asked["text"]) == ("user", None, "What is the capital of France?")
        assert (reply["role"], reply["parent"]) == ("assistant", asked["id"])
        assert reply["generation"]["state"] in ("queued", "loading")
        message = await Message.objects.select_related("generation", "conversation").aget(pk=reply["id"])
        frames = [await socket.next()]
        assert {"type": "conversation.changed", "conversation": {
            "id": str(chat.pk), "title": "What is the capital of France?"}} in frames
        await sync_to_async(pump(message).say)("Paris")
        while frames[-1]["type"] != "generation.deltas":
            frames.append(await socket.next())
        assert frames[-1]["deltas"][0]["text"] == "Paris"


async def test_the_users_other_pages_see_the_message_without_its_ref(page: Client, chat: Conversation) -> None:
    async with Socket(page) as sender, Socket(page) as other:
        own = await sender.ask(type="message.send", ref="s1", conversation=str(chat.pk), parent=None, text="Hello")
        seen = [await other.next(), await other.next()]
        assert own | {"ref": None} in [frame | {"ref": None} for frame in seen]
        assert all("ref" not in frame for frame in seen)
        assert "conversation.changed" in {frame["type"] for frame in seen}


async def test_the_next_message_follows_the_reply_and_carries_its_text(page: Client, chat: Conversation) -> None:
    async with Socket(page) as socket:
        first = await send(socket, chat, None, "What is the capital of France?")
        await ended(first["reply"])
        second = await send(socket, chat, first["reply"]["id"], "And of Spain?")
        assert second["user_message"]["parent"] == first["reply"]["id"]


async def send(socket: Socket, chat: Conversation, parent: str | None, text: str) -> dict:  # type: ignore[type-arg]
    """Send a message and return its answer, leaving out what else arrives meanwhile."""
    await socket.send_json_to({"type": "message.send", "ref": text, "conversation": str(chat.pk), "parent": parent,
                               "text": text})
    return await answer(socket, text)


async def answer(socket: Socket, ref: str) -> dict:  # type: ignore[type-arg]
    while True:
        frame = await socket.next()
        if frame.get("ref") == ref:
            return frame


async def test_regenerating_makes_a_sibling_reply(page: Client, chat: Conversation) -> None:
    async with Socket(page) as socket:
        first = await send(socket, chat, None, "Hello")
        refused = await regenerate(socket, first["reply"]["id"])
        assert (refused["type"], refused["code"]) == ("error", "refused")
        await ended(first["reply"])
        again = await regenerate(socket, first["reply"]["id"])
        assert again["user_message"] is None
        assert again["reply"]["parent"] == first["reply"]["parent"]
        assert again["reply"]["id"] != first["reply"]["id"]
        seeds = {params["seed"] async for params in Generation.objects.values_list("params", flat=True)}
        assert len(seeds) == 2


async def regenerate(socket: Socket, message: str) -> dict:  # type: ignore[type-arg]
    await socket.send_json_to({"type": "message.regenerate", "ref": "again", "message": message})
    return await answer(socket, "again")


async def test_stop_answers_with_the_view(page: Client, chat: Conversation) -> None:
    async with Socket(page) as socket:
        first = await send(socket, chat, None, "Hello")
        generation = first["reply"]["generation"]["id"]
        await socket.send_json_to({"type": "generation.stop", "ref": "x", "generation": generation})
        frame = await answer(socket, "x")
        assert (frame["type"], frame["view"]["id"]) == ("generation.view", generation)
        assert frame["view"]["state"] == "stopped"


@pytest.mark.parametrize("text", ["", "  \n\t ", "a\0b", "x" * 100_001])
async def test_a_text_that_will_not_do_is_refused_and_nothing_is_written(page: Client, conversation: Conversation,
                                                                         text: str) -> None:
    async with Socket(page) as socket:
        frame = await socket.ask(**send_frame(conversation.pk) | {"text": text})
        assert (frame["code"], frame["field"]) == ("refused", "text")
        assert not await Message.objects.aexists()


async def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(page: Client, chat: Conversation) -> None:
    async with Socket(page) as socket:
        frame = await socket.ask(**send_frame(chat.pk) | {"text": "word " * 9000})
        assert (frame["code"], frame["field"]) == ("too_long", "text")
        assert str(chat.version.context_length) in frame["message"].replace(",", "")
        assert any(int(number) > 9000 for number in frame["message"].replace(",", "").split() if number.isdigit())
        assert not await Message.objects.aexists()
        assert not await Generation.objects.aexists()
        await chat.arefresh_from_db()
        assert chat.title == ""


async def test_nothing_can_follow_a_running_reply_or_a_question(page: Client, conversation: Conversation,
                                                                exchange: Callable[..., Message]) -> None:
    reply = await sync_to_async(exchange)(conversation, state="running")
    async with Socket(page) as socket:
        for parent in (reply.pk, reply.parent_id):
            frame = await send(socket, conversation, str(parent), f"under {parent}")
            assert (frame["code"], frame["field"]) == ("refused", "parent")
        beside = await send(socket, conversation, None, "beside it")
        assert beside["code"] == "refused"
        assert await Message.objects.acount() == 2


async def test_without_a_model_the_answer_says_so(page: Client, ada: User) -> None:
    empty = await Conversation.objects.acreate(owner=ada)
    async with Socket(page) as socket:
        frame = await send(socket, empty, None, "Hello")
        assert (frame["code"], frame["field"]) == ("refused", "version")


async def test_foreign_looks_like_missing_on_every_frame(client: Client, bob: User, conversation: Conversation,
                                                         exchange: Callable[..., Message], nowhere: uuid.UUID,
                                                         version: Version) -> None:
    reply = await sync_to_async(exchange)(conversation, state="running")
    own = await Conversation.objects.acreate(owner=bob, version=version)
    await sync_to_async(client.force_login)(bob)
    async with Socket(client) as socket:
        for theirs, missing in [
            (send_frame(conversation.pk), send_frame(nowhere)),
            (send_frame(own.pk, reply.pk), send_frame(own.pk, nowhere)),
            ({"type": "message.regenerate", "message": str(reply.pk)},
             {"type": "message.regenerate", "message": str(nowhere)}),
            ({"type": "generation.stop", "generation": str(reply.generation_id)},
             {"type": "generation.stop", "generation": str(nowhere)}),
            ({"type": "generation.watch", "generation": str(reply.generation_id), "after": 0},
             {"type": "generation.watch", "generation": str(nowhere), "after": 0}),
        ]:
            first, second = await socket.ask(**theirs), await socket.ask(**missing)
            assert first == second
            assert first["code"] == "not_found"
    await reply.generation.arefresh_from_db()
    assert not reply.generation.stop_requested
    assert await Message.objects.acount() == 2


def send_frame(conversation: uuid.UUID, parent: uuid.UUID | None = None) -> dict[str, object]:
    return {"type": "message.send", "conversation": str(conversation), "parent": parent and str(parent), "text": "Hi"}


async def test_a_parent_in_another_conversation_of_the_same_person_is_missing(page: Client, conversation: Conversation,
                                                                              exchange: Callable[..., Message]) -> None:
    reply = await sync_to_async(exchange)(conversation)
    other = await Conversation.objects.acreate(owner=conversation.owner, version=conversation.version)
    async with Socket(page) as socket:
        frame = await send(socket, other, str(reply.pk), "Hello")
        assert frame["code"] == "not_found"


async def test_deleted_conversations_are_missing_on_every_frame(page: Client, conversation: Conversation,
                                                                exchange: Callable[..., Message]) -> None:
    reply = await sync_to_async(exchange)(conversation, state="running")
    await Conversation.objects.aupdate(deleted_at="2026-01-01T00:00Z")
    async with Socket(page) as socket:
        for frame in (send_frame(conversation.pk), {"type": "message.regenerate", "message": str(reply.pk)},
                      {"type": "generation.stop", "generation": str(reply.generation_id)},
                      {"type": "generation.watch", "generation": str(reply.generation_id), "after": 0}):
            assert (await socket.ask(**frame))["code"] == "not_found"


async def test_an_error_that_nobody_foresaw_is_told_logged_and_survived(
        page: Client, conversation: Conversation, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr(answers, "send", broken)
    async with Socket(page) as socket:
        frame = await send(socket, conversation, None, "Hello")
        assert (frame["code"], frame["field"]) == ("internal", "")
        assert "fire" not in json.dumps(frame)
        assert "the disk is on fire" in caplog.text
        assert await socket.ask(type="ping") == {"type": "pong"}


async def test_renaming_and_deleting_reach_open_pages(page: Client, conversation: Conversation) -> None:
    async with Socket(page) as socket:
        address = f"/c/{conversation.pk}/"
        await sync_to_async(page.post)(address + "rename/", {"title": "New name"})
        assert await socket.next() == {"type": "conversation.changed",
                                       "conversation": {"id": str(conversation.pk), "title": "New name"}}
        await sync_to_async(page.post)(address + "delete/")
        assert await socket.next() == {"type": "conversation.changed", "conversation": {
            "id": str(conversation.pk), "title": "New name", "deleted": True}}
