"""Waiting for news of many things on one Redis channel from asynchronous code: the ear, and the look at what is silent.

Messages are hints: one can be lost, and Valkey can be away. So whoever waits also looks things up from time to time.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import redis

from webapp.serving.reply_channel import new_channel

logger = logging.getLogger(__name__)
RETRY_SECONDS = 0.3
LISTEN_SECONDS = 1.0
READY_SECONDS = 2.0


class Listener:
    """One event loop's ear on a channel of its own.

    what: what is waited for, in the logs. ending: of the channel's name in Redis. watch_seconds: between two looks.
    """

    what: ClassVar[str]
    ending: ClassVar[str] = ""
    watch_seconds: ClassVar[float]

    def __init__(self) -> None:
        self.channel = new_channel()
        self._listening = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def client(self) -> Any:
        """Return the asynchronous client that listens."""
        raise NotImplementedError

    async def hear(self, message: Any) -> None:
        """Take a message. May raise redis.RedisError or msgspec.MsgspecError: then the channel is opened anew."""
        raise NotImplementedError

    async def look_up(self) -> None:
        """Look for what no message told. Whatever it raises is logged, and the next look tries again."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Start to listen, before anybody names the channel; goes on without when Valkey is away."""
        if not self._tasks or any(task.done() for task in self._tasks):
            for task in self._tasks:
                task.cancel()
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self._listening.wait()

    async def end(self) -> None:
        """Stop listening; a later `begin` starts anew."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.clear()

    async def _listen(self) -> None:
        while True:
            try:
                async with self.client().pubsub(ignore_subscribe_messages=True) as ear:
                    await ear.subscribe(self.channel + self.ending)
                    self._listening.set()
                    while True:
                        message = await ear.get_message(timeout=LISTEN_SECONDS)
                        if message is not None and message["type"] == "message":
                            await self.hear(message["data"])
            except (redis.RedisError, msgspec.MsgspecError) as error:
                self._listening.clear()
                logger.warning("%s wait for Valkey: %s", self.what, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.watch_seconds)
            try:
                await self.look_up()
            except Exception as error:  # the database or Valkey is away: the next round tries again
                logger.warning("%s could not be looked up: %s", self.what, error or type(error).__name__)
