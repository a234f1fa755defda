"""The chat tables in the admin, and what goes with a user who is deleted."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from webapp.chat.models import Conversation, Message
from webapp.serving.models import Generation

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("table", ["conversation", "message"])
def test_tables_are_listed_searched_and_shown_in_the_admin(admin_client: Client, conversation: Conversation,
                                                           exchange: Callable[..., Message], table: str) -> None:
    reply = exchange(conversation, parent=exchange(conversation))
    row = conversation.pk if table == "conversation" else reply.pk
    for address in (f"/admin/chat/{table}/", f"/admin/chat/{table}/?q=ada", f"/admin/chat/{table}/{row}/change/"):
        assert admin_client.get(address).status_code == 200


def test_deleting_a_user_takes_their_conversations_along(conversation: Conversation, ada: User,
                                                         exchange: Callable[..., Message]) -> None:
    exchange(conversation, parent=exchange(conversation))
    ada.delete()
    assert not Conversation.objects.exists()
    assert not Message.objects.exists()
    assert not Generation.objects.exists()
