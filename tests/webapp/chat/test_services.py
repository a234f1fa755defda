"""What a message leaves in the database: the prompt that is run, its sampling, the title; or nothing at all."""

import threading
import uuid
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connections

from inference.text.prompt import PromptBuilder
from registry.models import Alias, Deployment, Version
from registry.selectors import version_folder
from webapp.chat.errors import ChatRefused
from webapp.chat.models import Conversation, Message
from webapp.chat.selectors import conversation_for, generation_for, generations_for, message_for
from webapp.chat.services import conversation_create, message_regenerate, message_send
from webapp.serving.errors import VersionUnavailable
from webapp.serving.models import Generation

pytestmark = pytest.mark.django_db


@pytest.fixture
def chat(ada: User, demo_version: Version) -> Conversation:
    return Conversation.objects.create(owner=ada, version=demo_version)


def ended(reply: Message, text: str, state: str = "done") -> Message:
    Generation.objects.filter(pk=reply.generation_id).update(state=state, text=text)
    return Message.objects.get(pk=reply.pk)


def test_the_prompt_is_the_system_prompt_and_the_path_to_the_question(chat: Conversation, ada: User,
                                                                      demo_version: Version) -> None:
    chat.system_prompt = "Answer in one word."
    chat.save()
    first = message_send(conversation=chat, parent=None, text="Capital of France?", by=ada)
    left = ended(first.reply, "Paris", state="stopped")
    right = ended(message_regenerate(message=left, by=ada).reply, "It is Paris.")
    message_send(conversation=chat, parent=right, text="Not on this path", by=ada)
    last = message_send(conversation=chat, parent=left, text=" And of Spain?\n", by=ada)
    expected = PromptBuilder.from_path(version_folder(demo_version)).chat_ids([
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Capital of France?"},
        {"role": "assistant", "content": "Paris"},
        {"role": "user", "content": " And of Spain?\n"},
    ])
    assert last.reply.generation is not None
    assert last.reply.generation.prompt_ids == expected


def test_an_empty_system_prompt_is_left_to_the_template(chat: Conversation, ada: User, demo_version: Version) -> None:
    reply = message_send(conversation=chat, parent=None, text="Hello", by=ada).reply
    expected = PromptBuilder.from_path(version_folder(demo_version)).chat_ids([{"role": "user", "content": "Hello"}])
    assert reply.generation is not None
    assert reply.generation.prompt_ids == expected


def test_sampling_is_the_conversations(chat: Conversation, ada: User) -> None:
    Conversation.objects.update(temperature=0, top_p=0.5, top_k=7, max_tokens=9, seed=11)
    reply = message_send(conversation=chat, parent=None, text="Hello", by=ada).reply
    assert reply.generation is not None
    params = reply.generation.params
    assert {name: params[name] for name in ("temperature", "top_p", "top_k", "max_tokens", "seed")} == {
        "temperature": 0, "top_p": 0.5, "top_k": 7, "max_tokens": 9, "seed": 11}


@pytest.mark.parametrize(("seed", "different"), [(None, 2), (11, 1)])
def test_regenerating_draws_a_new_seed_unless_one_is_pinned(chat: Conversation, ada: User, seed: int | None,
                                                            different: int) -> None:
    Conversation.objects.update(seed=seed)
    first = ended(message_send(conversation=chat, parent=None, text="Hello", by=ada).reply, "Hi")
    second = message_regenerate(message=first, by=ada).reply
    assert second.parent_id == first.parent_id
    assert len({g.params["seed"] for g in Generation.objects.all()}) == different
    assert len({tuple(g.prompt_ids) for g in Generation.objects.all()}) == 1


def test_the_first_message_gives_the_title_and_later_ones_do_not(chat: Conversation, ada: User) -> None:
    reply = ended(message_send(conversation=chat, parent=None, text="What is\nParis?", by=ada).reply, "A city.")
    message_send(conversation=chat, parent=reply, text="And Rome?", by=ada)
    chat.refresh_from_db()
    assert chat.title == "What is Paris?"


def test_a_message_moves_its_conversation_to_the_front(chat: Conversation, ada: User) -> None:
    Conversation.objects.update(updated_at="2001-01-01T00:00Z")
    message_send(conversation=chat, parent=None, text="Hello", by=ada)
    chat.refresh_from_db()
    assert chat.updated_at.year > 2001


def test_a_refused_prompt_leaves_nothing_behind(chat: Conversation, ada: User, demo_version: Version) -> None:
    Deployment.objects.create(version=demo_version, state="failed", reason="config.json: no such file")
    with pytest.raises(VersionUnavailable, match="config.json: no such file"):
        message_send(conversation=chat, parent=None, text="Hello", by=ada)
    chat.refresh_from_db()
    assert chat.title == ""
    assert not Message.objects.exists()
    assert not Generation.objects.exists()


def test_a_conversation_without_a_version_takes_the_first_one_offered(ada: User, demo_version: Version) -> None:
    chat = Conversation.objects.create(owner=ada)
    message_send(conversation=chat, parent=None, text="Hello", by=ada)
    chat.refresh_from_db()
    assert chat.version == demo_version
    assert conversation_create(owner=ada).version == demo_version


def test_replies_follow_an_alias_and_a_version_that_may_not_be_used_is_refused(
        chat: Conversation, ada: User, demo_version: Version) -> None:
    newer = copy_of(demo_version, number=2)
    alias = Alias.objects.create(model=demo_version.model, name="production", version=demo_version)
    Conversation.objects.filter(pk=chat.pk).update(alias="production")
    first = ended(message_send(conversation=chat, parent=None, text="Hello", by=ada).reply, "Hi")
    Alias.objects.filter(pk=alias.pk).update(version=newer)
    second = message_send(conversation=chat, parent=first, text="Hello", by=ada).reply
    assert [reply.generation.version for reply in (first, second)] == [demo_version, newer]
    second = ended(second, "Hi")
    alias.delete()
    with pytest.raises(ChatRefused, match=r"smollm2@production can't be used"):
        message_send(conversation=chat, parent=second, text="Hello", by=ada)
    Conversation.objects.filter(pk=chat.pk).update(alias="", version=newer)
    Version.objects.filter(pk=newer.pk).update(state="archived")
    with pytest.raises(ChatRefused, match=r"smollm2:2 can't be used"):
        message_send(conversation=chat, parent=second, text="Hello", by=ada)


def copy_of(version: Version, *, number: int) -> Version:
    """Make another ready version of the same files."""
    made = Version.objects.create(model=version.model, number=number, state="ready",
                                  context_length=version.context_length)
    for artifact in version.artifacts.all():
        made.artifacts.create(path=artifact.path, role=artifact.role, blob=artifact.blob)
    return made


def test_an_edited_question_is_a_sibling(chat: Conversation, ada: User) -> None:
    first = message_send(conversation=chat, parent=None, text="Hello", by=ada)
    ended(first.reply, "Hi")
    second = message_send(conversation=chat, parent=None, text="Hello again", by=ada)
    assert second.user_message is not None
    assert second.user_message.parent is None
    assert second.reply.parent == second.user_message


def test_only_replies_can_be_generated_again(chat: Conversation, ada: User) -> None:
    sent = message_send(conversation=chat, parent=None, text="Hello", by=ada)
    assert sent.user_message is not None
    with pytest.raises(ChatRefused) as caught:
        message_regenerate(message=sent.user_message, by=ada)
    assert caught.value.field == "message"


@pytest.mark.django_db(transaction=True)
def test_of_two_sends_at_once_one_is_refused(chat: Conversation, ada: User) -> None:
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def send() -> None:
        barrier.wait()
        try:
            message_send(conversation=chat, parent=None, text="Hello", by=ada)
            outcomes.append("sent")
        except ChatRefused:
            outcomes.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 3 + ["sent"]
    assert Generation.objects.count() == 1


def test_the_doors_open_to_the_owner_only(conversation: Conversation, exchange: Callable[..., Message], ada: User,
                                          bob: User, nowhere: uuid.UUID) -> None:
    reply = exchange(conversation)
    generation = reply.generation_id
    assert conversation_for(viewer=ada, pk=conversation.pk) == conversation
    assert message_for(viewer=ada, pk=reply.pk) == reply
    assert generation_for(viewer=ada, pk=generation).pk == generation
    for viewer, conversation_pk, message_pk, generation_pk in [
            (bob, conversation.pk, reply.pk, generation), (ada, nowhere, nowhere, nowhere)]:
        with pytest.raises(Conversation.DoesNotExist):
            conversation_for(viewer=viewer, pk=conversation_pk)
        with pytest.raises(Conversation.DoesNotExist):
            conversation_for(viewer=viewer, pk=conversation_pk, deleted=True)
        with pytest.raises(Message.DoesNotExist):
            message_for(viewer=viewer, pk=message_pk)
        with pytest.raises(Generation.DoesNotExist):
            generation_for(viewer=viewer, pk=generation_pk)
        assert generations_for(viewer=viewer, pks=[generation_pk]) == []


def test_a_new_conversation_draws_as_the_models_own_configuration_says(ada: User, demo_version: Version) -> None:
    assert demo_version.sampling == {}  # its metadata say nothing of sampling
    assert conversation_create(owner=ada, version=demo_version).temperature == 0
    demo_version.sampling = {"temperature": 0.6, "top_p": 0.9, "top_k": 20}
    chat = conversation_create(owner=ada, version=demo_version)
    assert (chat.temperature, chat.top_p, chat.top_k) == (0.6, 0.9, 20)
