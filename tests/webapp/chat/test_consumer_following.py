"""A socket that follows a reply shows its text exactly once and in order, whatever the channel layer loses."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.webapp.chat.conftest import Pump, Socket
from webapp.chat.models import Conversation, Message
from webapp.serving.models import Generation
from webapp.serving.streams import stream_client, stream_key

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reply(conversation: Conversation, exchange: Callable[..., Message]) -> Message:
    return exchange(conversation, state="running", phase="decoding", attempt=1)


@pytest.fixture
def writer(reply: Message, pump: Callable[[Message], Pump]) -> Pump:
    return pump(reply)


class Screen:
    """What a browser shows: the contract's rules and nothing more, so that a wrong frame shows as wrong text."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.text = ""
        self.index = 0
        self.snapshots = 0
        self.view: dict[str, Any] = {}

    def take(self, frame: dict[str, Any]) -> dict[str, Any]:
        if frame["type"] == "generation.deltas":
            for delta in frame["deltas"]:
                if delta["generation"] == self.generation:
                    assert delta["first"] == self.index + 1, "a gap or an overlap reached the browser"
                    self.index, self.text = delta["last"], self.text + delta["text"]
        elif frame["type"] == "generation.snapshot":
            self.index, self.text, self.view = frame["index"], frame["text"], frame["view"]
            self.snapshots += 1
        elif frame["type"] == "generation.view":
            self.view = frame["view"]
            assert self.view["index"] == self.index
        return frame

    async def until(self, socket: Socket, done: Callable[["Screen"], bool], *, within: float = 8) -> None:
        async with asyncio.timeout(within):
            while not done(self):
                self.take(await socket.next(within=within))


def ended(screen: Screen) -> bool:
    return screen.view.get("state") in ("done", "stopped", "failed")


async def watching(socket: Socket, writer: Pump, *, after: int = 0) -> Screen:
    screen = Screen(writer.id)
    screen.index = after
    frame = await socket.ask(type="generation.watch", ref="w", generation=writer.id, after=after)
    assert frame["ref"] == "w" or frame["type"] == "generation.deltas"
    screen.take(frame)
    return screen


async def test_steps_of_a_followed_reply_come_as_deltas_and_the_final_view_last(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        for text in ("The", " capital", " is", " Paris"):
            await sync_to_async(writer.say)(text)
            screen.take(await socket.next())
        assert screen.text == "The capital is Paris"
        await sync_to_async(writer.end)()
        await screen.until(socket, ended)
        assert (screen.index, screen.text, screen.snapshots) == (4, "The capital is Paris", 1)
        assert screen.view["state"] == "done"
        assert await socket.silent()


async def test_an_unfollowed_reply_sends_nothing(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        await sync_to_async(writer.say)("secret")
        assert await socket.silent()


async def test_one_step_of_many_replies_is_one_frame(page: Client, conversation: Conversation,
                                                     exchange: Callable[..., Message],
                                                     pump: Callable[[Message], Pump]) -> None:
    replies = [await sync_to_async(exchange)(conversation, state="running", phase="decoding") for _ in range(4)]
    writers = [pump(reply) for reply in replies]
    async with Socket(page) as socket:
        for writer in writers[:3]:
            await watching(socket, writer)
        deltas = [await sync_to_async(writer.write)(f"text {i}") for i, writer in enumerate(writers)]
        await sync_to_async(writers[0].send)(*deltas)
        frame = await socket.next()
        assert frame == {"type": "generation.deltas", "deltas": deltas[:3]}
        assert await socket.silent()


async def test_lost_events_are_read_from_the_stream(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        await sync_to_async(writer.say)("one")
        await sync_to_async(writer.write)(" two", " three")  # never announced
        await sync_to_async(writer.say)(" four")
        await screen.until(socket, lambda screen: screen.index == 4)
        assert (screen.text, screen.snapshots) == ("one two three four", 1)


async def test_doubled_late_and_overlapping_events_show_nothing_twice(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        first = await sync_to_async(writer.write)("a")
        second = await sync_to_async(writer.write)("b", "c")
        third = await sync_to_async(writer.write)("d")
        overlap = {**second, "last": 4, "text": "bcd"}
        for delta in (first, first, second, overlap, second, third, first):
            await sync_to_async(writer.send)(delta)
        await screen.until(socket, lambda screen: screen.index == 4)
        assert screen.text == "abcd"
        await sync_to_async(writer.end)()
        await screen.until(socket, ended)
        assert (screen.text, screen.snapshots) == ("abcd", 1)


async def test_silence_is_ended_by_reading_row_and_stream(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        await sync_to_async(writer.say)("one")
        screen.take(await socket.next())
        await sync_to_async(writer.write)(" two")  # and then no event, ever
        started = time.monotonic()
        await screen.until(socket, lambda screen: screen.index == 2)
        assert screen.text == "one two"
        assert 1.0 < time.monotonic() - started < 4.0


async def test_an_end_that_nobody_announced_is_found(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        await sync_to_async(writer.write)("all", " of it")
        await sync_to_async(writer.end)(lost=True)
        await screen.until(socket, ended)
        assert (screen.index, screen.text) == (2, "all of it")


async def test_a_row_ahead_of_the_stream_replaces_what_is_shown(page: Client, writer: Pump) -> None:
    """As after a Redis that lost its data: the stream begins again beyond what the browser has."""
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        await sync_to_async(writer.say)("one")
        screen.take(await socket.next())
        await sync_to_async(writer.write)(" two", " three")
        await sync_to_async(writer.checkpoint)()
        await sync_to_async(stream_client().delete)(stream_key(writer.id))
        await sync_to_async(writer.say)(" four")
        await screen.until(socket, lambda screen: screen.index == 4)
        assert (screen.text, screen.snapshots) == ("one two three four", 2)


async def test_reload_in_mid_reply_shows_the_text_so_far_and_goes_on(page: Client, writer: Pump) -> None:
    await sync_to_async(writer.write)("one", " two")
    await sync_to_async(writer.checkpoint)()
    await sync_to_async(writer.write)(" three")  # in the stream only
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        assert (screen.index, screen.text, screen.view["state"]) == (3, "one two three", "decoding")
        await sync_to_async(writer.say)(" four")
        screen.take(await socket.next())
        await sync_to_async(writer.end)()
        await screen.until(socket, ended)
        assert (screen.text, screen.snapshots) == ("one two three four", 1)


async def test_reconnecting_gets_only_the_rest(page: Client, writer: Pump) -> None:
    await sync_to_async(writer.write)("one", " two", " three")
    async with Socket(page) as socket:
        screen = Screen(writer.id)
        screen.index, screen.text = 2, "one two"
        screen.take(await socket.ask(type="generation.watch", generation=writer.id, after=2))
        assert (screen.text, screen.snapshots) == ("one two three", 0)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 99])
async def test_following_an_ended_reply_ends_with_its_whole_text(page: Client, writer: Pump, after: int) -> None:
    words = ["one", " two", " three"]
    await sync_to_async(writer.write)(*words)
    await sync_to_async(writer.end)()
    async with Socket(page) as socket:
        screen = Screen(writer.id)
        screen.index, screen.text = after, "".join(words[:after])
        await socket.send_json_to({"type": "generation.watch", "generation": writer.id, "after": after})
        await screen.until(socket, ended)
        if screen.snapshots:
            screen.take(await socket.next())  # the final view itself
        assert (screen.index, screen.text) == (3, "one two three")
        await sync_to_async(writer.send)(views=True)
        assert await socket.silent()


async def test_text_held_back_until_the_end_is_shown(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        await sync_to_async(writer.say)("one")
        await sync_to_async(writer.send)({"generation": writer.id, "first": 2, "last": 1, "text": " tail"})
        await sync_to_async(writer.end)("stopped", tail=" tail")
        await screen.until(socket, ended)
        assert (screen.index, screen.text, screen.view["state"]) == (1, "one tail", "stopped")


async def test_an_end_announced_before_its_last_tokens_comes_after_them(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        late = await sync_to_async(writer.write)("one", " two")
        await sync_to_async(writer.end)()
        await sync_to_async(writer.send)(late)
        await screen.until(socket, ended)
        assert (screen.index, screen.text, screen.snapshots) == (2, "one two", 1)
        assert await socket.silent()


async def test_phases_are_shown_as_they_change_and_not_again(page: Client, writer: Pump) -> None:
    await sync_to_async(Generation.objects.update)(phase="waiting")
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        assert screen.view["state"] == "waiting"
        await sync_to_async(Generation.objects.update)(phase="prefill", prefill_done=64)
        await sync_to_async(writer.send)(views=True)
        await sync_to_async(writer.send)(views=True)
        screen.take(await socket.next())
        assert (screen.view["state"], screen.view["prefill_done"]) == ("prefill", 64)
        assert await socket.silent()


async def test_steps_cost_no_query(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        captured = CaptureQueriesContext(connection)
        await sync_to_async(captured.__enter__)()  # in the thread that the socket's queries run in too
        for _ in range(50):
            await sync_to_async(writer.say)("x")
        await screen.until(socket, lambda screen: screen.index == 50)
        steps = await sync_to_async(lambda: list(captured.captured_queries))()
        await sync_to_async(writer.view)()
        with_one = await sync_to_async(lambda: list(captured.captured_queries))()
        await sync_to_async(captured.__exit__)(None, None, None)
        assert (len(steps), len(with_one)) == (0, 1)


async def test_a_deleted_conversation_is_no_longer_followed(page: Client, writer: Pump,
                                                            conversation: Conversation) -> None:
    async with Socket(page) as socket:
        await watching(socket, writer)
        await sync_to_async(Conversation.objects.update)(deleted_at="2026-01-01T00:00Z")
        await sync_to_async(writer.end)()
        assert await socket.silent(seconds=0.5)


async def test_steps_of_others_do_not_arrive(client: Client, bob: User, writer: Pump) -> None:
    await sync_to_async(client.force_login)(bob)
    async with Socket(client) as socket:
        frame = await socket.ask(type="generation.watch", generation=writer.id)
        assert (frame["type"], frame["code"]) == ("error", "not_found")
        await sync_to_async(writer.say)("secret")
        assert await socket.silent()
