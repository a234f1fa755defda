"""Whatever is lost, doubled or late on the way, a browser ends with exactly the text that the row has."""

import asyncio
import random
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from tests.webapp.chat.conftest import Pump, Socket
from tests.webapp.chat.test_consumer_following import ended, reply, watching, writer
from webapp.serving.streams import stream_client, stream_key

__all__ = ["reply", "writer"]  # fixtures

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = ["Par", "is", " ", "法", "", "国", "🙂", "\n", "</script>", "e\u0301"]


def play(pump: Pump, chance: random.Random, *, tokens: int) -> None:
    """Write a reply step by step through a channel layer that loses, doubles and delays, and a stream that is lost."""
    late: list[Any] = []
    while pump.index < tokens:
        delta = pump.write(*chance.choices(WORDS, k=chance.choice([1, 1, 1, 3])))
        fate = chance.random()
        if fate < 0.6:
            pump.send(delta)
        elif fate < 0.7:
            pump.send(delta, delta)
        elif fate < 0.8:
            late.append(delta)
        if late and chance.random() < 0.3:
            pump.send(late.pop(0), views=True)
        if chance.random() < 0.15:
            pump.checkpoint()
        if chance.random() < 0.03:
            pump.checkpoint()
            stream_client().delete(stream_key(pump.id))
    pump.send(*late)
    pump.end(chance.choice(["done", "stopped", "failed"]), tail=chance.choice(["", "", " tail"]))


@pytest.mark.parametrize("seed", range(12))
async def test_a_lossy_channel_layer_leaves_the_exact_text(page: Client, writer: Pump, seed: int) -> None:
    chance = random.Random(seed)
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        playing = asyncio.ensure_future(sync_to_async(play)(writer, chance, tokens=120))
        await screen.until(socket, ended, within=15)
        await playing
        assert (screen.text, screen.index) == (writer.text, writer.index)


async def test_a_cut_subscription_loses_nothing(page: Client, writer: Pump) -> None:
    async with Socket(page) as socket:
        screen = await watching(socket, writer)
        await sync_to_async(writer.say)("one")
        screen.take(await socket.next())
        assert await sync_to_async(stream_client().client_kill_filter)(_type="pubsub")
        for text in (" two", " three", " four"):
            await sync_to_async(writer.say)(text)  # nobody is subscribed
        await screen.until(socket, lambda screen: screen.index == 4)
        assert screen.text == "one two three four"
        await asyncio.sleep(1.5)  # by then the channel layer has subscribed again
        await sync_to_async(writer.say)(" five")
        await screen.until(socket, lambda screen: screen.index == 5, within=1)
        assert screen.text == "one two three four five"


async def test_a_browser_that_reads_nothing_holds_up_nobody_else(page: Client, writer: Pump) -> None:
    async with Socket(page) as stuck, Socket(page) as socket:
        await watching(stuck, writer)
        screen = await watching(socket, writer)
        await sync_to_async(play)(writer, random.Random(1), tokens=100)
        await screen.until(socket, ended)
        assert screen.text == writer.text
