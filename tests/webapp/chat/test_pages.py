"""The chat pages and their JSON calls: what they show, what they change and what they refuse."""

import json
import uuid
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from registry.models import Alias, Deployment, Model, Version
from webapp.chat.models import Conversation, Message

pytestmark = pytest.mark.django_db

POSTS = ["rename", "delete", "settings"]


class _PageData(HTMLParser):
    """Collects the text of the script element with the id `page-data`."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script" and dict(attrs).get("id") == "page-data"

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        self.text += data if self.inside else ""


def data_of(content: bytes) -> dict[str, Any]:
    parser = _PageData()
    parser.feed(content.decode())
    return json.loads(parser.text)


def test_home_goes_to_the_conversation_used_last(page: Client, conversation: Conversation, ada: User) -> None:
    Conversation.objects.create(owner=ada, updated_at="2001-01-01T00:00Z")
    assert page.get("/").headers["Location"] == f"/c/{conversation.pk}/"


def test_home_without_conversations_is_an_empty_page(page: Client, version: Version) -> None:
    data = data_of(page.get("/").content)
    assert data["conversation"] is None
    assert data["messages"] == []
    assert data["user"] == {"username": "ada", "is_staff": False}
    assert data["urls"]["create"] == "/c/"
    assert [model["name"] for model in data["models"]] == ["paper:1"]


def test_new_shows_an_empty_page_though_there_are_conversations(page: Client, conversation: Conversation) -> None:
    response = page.get("/?new")
    assert data_of(response.content)["conversation"] is None
    assert [listed.pk for listed in response.context["conversations"]] == [conversation.pk]


def test_a_page_says_that_there_are_no_models(page: Client) -> None:
    assert data_of(page.get("/").content)["models"] == []


def test_the_conversation_page_has_settings_and_the_tree(page: Client, conversation: Conversation,
                                                         exchange: Callable[..., Message]) -> None:
    reply = exchange(conversation)
    response = page.get(f"/c/{conversation.pk}/")
    data = data_of(response.content)
    assert data["conversation"] == {
        "id": str(conversation.pk), "title": "Capitals",
        "settings": {"version": conversation.version_id, "alias": "", "model": "paper:1", "system_prompt": "",
                     "temperature": 0, "top_p": 0.95, "top_k": 0, "max_tokens": 1024, "seed": None}}
    assert [message["id"] for message in data["messages"]] == [str(reply.parent_id), str(reply.pk)]


def test_text_of_people_cannot_leave_the_page_data(page: Client, conversation: Conversation,
                                                   exchange: Callable[..., Message]) -> None:
    evil = "</script><script>alert(1)</script>"
    conversation.title = conversation.system_prompt = evil
    conversation.save()
    exchange(conversation, text=evil)
    content = page.get(f"/c/{conversation.pk}/").content
    assert evil.encode() not in content
    assert data_of(content)["messages"][0]["text"] == evil


def test_messages_are_the_whole_tree_oldest_first(page: Client, conversation: Conversation,
                                                  exchange: Callable[..., Message]) -> None:
    first = exchange(conversation, text="Hello")
    second = exchange.answer(first.parent, state="stopped")  # type: ignore[attr-defined]
    third = exchange(conversation, parent=second, text="More")
    answer = page.get(f"/c/{conversation.pk}/messages/").json()
    messages = answer["messages"]
    assert answer["conversation"]["title"] == "Capitals"
    assert [(m["id"], m["parent"], m["role"]) for m in messages] == [
        (str(first.parent_id), None, "user"),
        (str(first.pk), str(first.parent_id), "assistant"),
        (str(second.pk), str(first.parent_id), "assistant"),
        (str(third.parent_id), str(second.pk), "user"),
        (str(third.pk), str(third.parent_id), "assistant"),
    ]
    assert messages[0]["text"] == "Hello"
    assert messages[0]["generation"] is None
    assert messages[2]["generation"]["state"] == "stopped"


def test_a_running_reply_shows_its_checkpoint_and_the_index_of_it(page: Client, conversation: Conversation,
                                                                  exchange: Callable[..., Message]) -> None:
    exchange(conversation, state="running", phase="decoding", output_count=2, said="Paris is")
    reply = page.get(f"/c/{conversation.pk}/messages/").json()["messages"][1]
    assert (reply["text"], reply["generation"]["index"], reply["generation"]["state"]) == ("Paris is", 2, "decoding")


def test_create_answers_with_the_address(page: Client, version: Version, ada: User) -> None:
    response = page.post("/c/", {"version": version.pk})
    made = Conversation.objects.get(owner=ada)
    assert response.status_code == 201
    assert response.json() == {"id": str(made.pk), "url": f"/c/{made.pk}/"}
    assert made.version == version


def test_create_takes_the_loaded_version_when_none_is_named(page: Client, version: Version) -> None:
    other = Version.objects.create(model=Model.objects.create(name="zebra"), number=1, state="ready")
    loaded = Deployment.objects.create(version=other, state="loaded")
    Deployment.objects.filter(pk=loaded.pk).update(held_until="2999-01-01T00:00Z")
    page.post("/c/")
    assert Conversation.objects.get().version == other


def test_create_works_without_any_model(page: Client) -> None:
    assert page.post("/c/").status_code == 201
    assert Conversation.objects.get().version is None


def test_create_refuses_a_version_that_is_not_offered(page: Client, version: Version) -> None:
    Version.objects.update(state="archived")
    response = page.post("/c/", {"version": version.pk})
    assert response.status_code == 400
    assert list(response.json()["errors"]) == ["version"]
    assert not Conversation.objects.exists()


def test_rename_changes_the_title(page: Client, conversation: Conversation) -> None:
    response = page.post(f"/c/{conversation.pk}/rename/", {"title": "  <b>New</b> "})
    assert response.json()["conversation"]["title"] == "<b>New</b>"
    conversation.refresh_from_db()
    assert conversation.title == "<b>New</b>"


@pytest.mark.parametrize("title", ["", "   ", "x" * 201, "a\0b"])
def test_rename_refuses_what_is_no_title(page: Client, conversation: Conversation, title: str) -> None:
    response = page.post(f"/c/{conversation.pk}/rename/", {"title": title})
    assert response.status_code == 400
    assert list(response.json()["errors"]) == ["title"]
    conversation.refresh_from_db()
    assert conversation.title == "Capitals"


def test_a_deleted_conversation_is_missing_until_it_is_restored(page: Client, conversation: Conversation) -> None:
    address = f"/c/{conversation.pk}/"
    assert page.post(address + "delete/").status_code == 200
    assert page.get(address).status_code == 404
    assert page.get(address + "messages/").status_code == 404
    assert [page.post(address + f"{verb}/", {"title": "x"}).status_code for verb in POSTS] == [404] * 3
    assert not page.get("/").context["conversations"]
    assert page.post(address + "restore/").json()["conversation"]["title"] == "Capitals"
    assert page.get(address).status_code == 200


def test_deleting_stops_what_is_being_written(page: Client, conversation: Conversation,
                                              exchange: Callable[..., Message]) -> None:
    reply = exchange(conversation, state="running")
    page.post(f"/c/{conversation.pk}/delete/")
    reply.generation.refresh_from_db()
    assert reply.generation.stop_requested


@pytest.mark.parametrize("verb", ["", "messages/"])
@pytest.mark.parametrize("method", ["get", "head", "options", "post", "put", "patch", "delete"])
def test_foreign_looks_like_missing_on_reads(client: Client, bob: User, conversation: Conversation,
                                             nowhere: uuid.UUID, method: str, verb: str) -> None:
    client.force_login(bob)
    foreign = getattr(client, method)(f"/c/{conversation.pk}/{verb}")
    missing = getattr(client, method)(f"/c/{nowhere}/{verb}")
    assert foreign.status_code == missing.status_code == (404 if method in ("get", "head") else 405)
    assert foreign.content == missing.content


@pytest.mark.parametrize("verb", [*POSTS, "restore"])
@pytest.mark.parametrize("method", ["get", "head", "options", "post", "put", "patch", "delete"])
def test_foreign_looks_like_missing_on_writes(client: Client, bob: User, conversation: Conversation,
                                              nowhere: uuid.UUID, method: str, verb: str) -> None:
    client.force_login(bob)
    values = {"title": "mine", "temperature": "1"} if method == "post" else {}
    foreign = getattr(client, method)(f"/c/{conversation.pk}/{verb}/", values)
    missing = getattr(client, method)(f"/c/{nowhere}/{verb}/", values)
    assert foreign.status_code == missing.status_code == (404 if method == "post" else 405)
    assert foreign.content == missing.content
    conversation.refresh_from_db()
    assert (conversation.title, conversation.deleted_at, conversation.temperature) == ("Capitals", None, 0)


def test_settings_take_some_fields_and_keep_the_rest(page: Client, conversation: Conversation) -> None:
    address = f"/c/{conversation.pk}/settings/"
    response = page.post(address, {"temperature": "0.5", "seed": "7", "system_prompt": " Be brief\n"})
    assert response.json()["settings"] == {
        "version": conversation.version_id, "alias": "", "model": "paper:1", "system_prompt": " Be brief\n",
        "temperature": 0.5, "top_p": 0.95, "top_k": 0, "max_tokens": 1024, "seed": 7}
    cleared = page.post(address, {"seed": "", "system_prompt": ""}).json()["settings"]
    assert (cleared["seed"], cleared["system_prompt"], cleared["temperature"]) == (None, "", 0.5)


@pytest.mark.parametrize(("field", "value"), [
    ("temperature", "-0.1"), ("temperature", "2.1"), ("temperature", "nan"), ("temperature", "warm"),
    ("temperature", ""), ("top_p", "1.1"), ("top_p", "inf"), ("top_k", "-1"), ("top_k", "1.5"), ("max_tokens", "0"),
    ("max_tokens", "x"), ("max_tokens", "9" * 30), ("seed", "-1"), ("seed", str(2**53)), ("seed", "1e3"),
    ("version", "0"), ("version", ""), ("version", "x"), ("system_prompt", "a\0b"),
    ("system_prompt", "x" * 100_001), ("tempreature", "1"),
])
def test_settings_name_the_field_that_is_wrong(page: Client, conversation: Conversation, field: str,
                                               value: str) -> None:
    response = page.post(f"/c/{conversation.pk}/settings/", {"top_k": "5"} | {field: value})
    assert response.status_code == 400
    errors = response.json()["errors"]
    assert list(errors) == ([field] if field != "tempreature" else ["__all__"])
    assert all(isinstance(message, str) for messages in errors.values() for message in messages)
    conversation.refresh_from_db()
    assert conversation.top_k == 0


def test_models_say_whether_they_are_loaded_and_why_not(page: Client, version: Version) -> None:
    broken = Model.objects.create(name="broken")
    other = Version.objects.create(model=broken, number=3, state="ready", context_length=64)
    Deployment.objects.create(version=other, state="failed", reason="config.json: no such file")
    Deployment.objects.create(version=version, state="loading", phase="packing", progress_done=1, progress_total=4)
    Deployment.objects.filter(version=version).update(held_until="2999-01-01T00:00Z")
    assert page.get("/models/").json()["models"] == [
        {"version": other.pk, "alias": "", "name": "broken:3", "context_length": 64, "state": "failed",
         "reason": "config.json: no such file", "load": None},
        {"version": version.pk, "alias": "", "name": "paper:1", "context_length": 2048, "state": "loading",
         "reason": "", "load": {"phase": "packing", "done": 1, "total": 4}},
    ]


def test_models_leave_out_what_cannot_chat(page: Client, version: Version) -> None:
    Version.objects.create(model=Model.objects.create(name="vectors", kind="embedding"), number=1, state="ready")
    Version.objects.create(model=version.model, number=2, state="draft")
    assert [model["name"] for model in page.get("/models/").json()["models"]] == ["paper:1"]


def test_scripts_are_told_to_sign_in_and_pages_lead_to_it(client: Client, conversation: Conversation) -> None:
    address = f"/c/{conversation.pk}/"
    assert client.get(address).headers["Location"] == f"/accounts/login/?next={address}"
    assert client.get("/").headers["Location"] == "/accounts/login/?next=/"
    calls = [client.get(address + "messages/"), client.get("/models/"), client.post("/c/")]
    calls += [client.post(address + f"{verb}/") for verb in [*POSTS, "restore"]]
    assert {call.status_code for call in calls} == {401}
    assert all("errors" in call.json() for call in calls)


def test_posts_want_a_csrf_token(ada: User, conversation: Conversation) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ada)
    address = f"/c/{conversation.pk}/"
    calls = [strict.post("/c/"), *(strict.post(address + f"{verb}/") for verb in [*POSTS, "restore"])]
    assert {call.status_code for call in calls} == {403}


def test_page_needs_as_many_queries_for_fifty_conversations_as_for_one(
        page: Client, conversation: Conversation, ada: User, exchange: Callable[..., Message],
        version: Version) -> None:
    exchange(conversation)
    Deployment.objects.create(version=version)
    page.get(f"/c/{conversation.pk}/")
    few = _queries(page, f"/c/{conversation.pk}/")
    Conversation.objects.bulk_create(Conversation(owner=ada, version=version, title=f"no. {i}") for i in range(50))
    for number in range(2, 12):
        other = Version.objects.create(model=version.model, number=number, state="ready")
        Deployment.objects.create(version=other)
        exchange(conversation)
    assert _queries(page, f"/c/{conversation.pk}/") == few
    assert few <= 8


def _queries(page: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert page.get(address).status_code == 200
    return len(captured)


def test_a_conversation_can_follow_an_alias_and_leave_it(page: Client, conversation: Conversation,
                                                         version: Version) -> None:
    newer = Version.objects.create(model=version.model, number=2, state="ready", context_length=2048)
    Alias.objects.create(model=version.model, name="production", version=newer)
    assert [model["name"] for model in page.get("/models/").json()["models"]] == [
        "paper:2", "paper:1", "paper@production"]
    address = f"/c/{conversation.pk}/settings/"
    followed = page.post(address, {"version": newer.pk, "alias": "production"}).json()["settings"]
    assert (followed["version"], followed["model"]) == (newer.pk, "paper@production")
    kept = page.post(address, {"temperature": "0.5"}).json()["settings"]
    assert kept["model"] == "paper@production"
    left = page.post(address, {"version": version.pk}).json()["settings"]
    assert (left["alias"], left["model"]) == ("", "paper:1")
