"""People, a version without files, and generations whose tokens are written as the pump writes them."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client

from registry.models import Model, Version
from tests.webapp.sockets import PageSocket
from webapp.chat.models import Conversation, Message, MessageRole
from webapp.serving.events import Delta, events_send, step_event
from webapp.serving.models import Generation, GenerationState
from webapp.serving.selectors import generation_view
from webapp.serving.streams import StreamEntry, StreamWrite, streams_publish


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password="a long pass phrase")


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create_user("bob", password="a long pass phrase")


@pytest.fixture
def page(client: Client, ada: User) -> Client:
    """A browser in which Ada is signed in."""
    client.force_login(ada)
    return client


@pytest.fixture
def version(db: None) -> Version:
    """A ready chat version of which there is only the row: enough for everything but tokenising."""
    model = Model.objects.create(name="paper", kind="chat")
    return Version.objects.create(model=model, number=1, state="ready", context_length=2048)


@pytest.fixture
def conversation(ada: User, version: Version) -> Conversation:
    return Conversation.objects.create(owner=ada, version=version, title="Capitals")


@pytest.fixture
def exchange(version: Version) -> Callable[..., Message]:
    """Make a user's message and its reply; returns the reply. Keyword arguments go to the generation."""

    def make(conversation: Conversation, *, parent: Message | None = None, text: str = "Hello",
             **fields: Any) -> Message:
        time.sleep(0.002)  # SQLite's clock has milliseconds, and no two turns of a person are of the same one
        asked = Message.objects.create(conversation=conversation, parent=parent, role=MessageRole.USER, content=text)
        return answer(asked, **fields)

    def answer(asked: Message, *, said: str = "", **fields: Any) -> Message:
        values = {"state": GenerationState.DONE, "prompt_ids": [1], "prompt_tokens": 1, "params": {}} | fields
        owner = asked.conversation.owner
        generation = Generation.objects.create(owner=owner, version=version, text=said, **values)
        return Message.objects.create(conversation=asked.conversation, parent=asked, role=MessageRole.ASSISTANT,
                                      generation=generation)

    make.answer = answer  # type: ignore[attr-defined]
    return make


@pytest.fixture
def nowhere() -> uuid.UUID:
    """An id that nothing has."""
    return uuid.uuid4()


class Pump:
    """Writes tokens of one generation as the serving app's pump does: stream, then event; row at checkpoints."""

    def __init__(self, reply: Message) -> None:
        self.generation = reply.generation
        self.owner = reply.conversation.owner_id
        self.id = str(reply.generation_id)
        self.index = 0
        self.text = ""

    def write(self, *texts: str) -> Delta:
        """Append tokens to the stream and return the delta that would be sent; as when the event is lost."""
        entries = [StreamEntry(self.index + 1 + i, 7, text) for i, text in enumerate(texts)]
        streams_publish([StreamWrite(generation_id=self.id, attempt=1, entries=entries)])
        self.index += len(texts)
        self.text += "".join(texts)
        return {"generation": self.id, "first": entries[0].index, "last": self.index, "text": "".join(texts)}

    def send(self, *deltas: Delta, views: bool = False) -> None:
        shown = [self.view()] if views else []
        assert events_send([(self.owner, step_event(deltas=list(deltas), views=shown))])

    def say(self, *texts: str) -> None:
        self.send(self.write(*texts))

    def checkpoint(self, **fields: Any) -> None:
        Generation.objects.filter(pk=self.id).update(text=self.text, output_count=self.index, **fields)

    def end(self, state: str = "done", *, tail: str = "", lost: bool = False) -> None:
        """End the generation; `tail` is text that was held back and comes without a token."""
        self.text += tail
        self.checkpoint(state=state, finish_reason="stop", ended_at=Now())
        if not lost:
            self.send(views=True)

    def view(self) -> dict[str, Any]:
        return generation_view(Generation.objects.select_related("version__model").get(pk=self.id)).to_dict()


class Socket(PageSocket):
    path = "/ws/chat/"

    async def silent(self, *, seconds: float = 0.2) -> bool:
        return await self.receive_nothing(timeout=seconds)


@pytest.fixture
def socket() -> Callable[[Client | None], Socket]:
    return Socket


@pytest.fixture
def pump() -> Callable[[Message], Pump]:
    return Pump
