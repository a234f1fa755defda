"""What administrators do on the registry's pages: each act is done once, written down, and refused in words."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.test import Client

from registry.models import Access, Alias, AuditEntry, Deployment, Model, Node, Version

pytestmark = pytest.mark.django_db


def act(client: Client, url: str, **fields: object) -> str:
    """Post and return the newest message that the next page shows."""
    answer = client.post(url, fields)
    assert answer.status_code == 302, answer.content.decode()
    *_, message = get_messages(answer.wsgi_request)
    return str(message)


def test_an_alias_is_made_moved_back_and_removed(admin_page: Client, paper: Model) -> None:
    assert "paper@production points at paper:1" in act(admin_page, "/catalog/m/paper/aliases/", alias="production",
                                                       version=1)
    act(admin_page, "/catalog/m/paper/aliases/", move="production:2")
    assert Alias.objects.get().version.number == 2
    act(admin_page, "/catalog/m/paper/aliases/production/back/")
    assert Alias.objects.get().version.number == 1
    act(admin_page, "/catalog/m/paper/aliases/production/remove/")
    assert not Alias.objects.exists()
    assert AuditEntry.objects.filter(actor="root").count() == 4


@pytest.mark.parametrize("fields", [{"alias": "Not Allowed", "version": 1}, {"alias": "", "version": 1},
                                    {"alias": "x", "version": "one"}, {"move": "x:"}, {"move": ":2"}])
def test_a_bad_alias_is_refused_in_words(admin_page: Client, paper: Model, fields: dict[str, object]) -> None:
    assert act(admin_page, "/catalog/m/paper/aliases/", **fields)
    assert not Alias.objects.exists()


def test_an_alias_to_a_version_that_is_not_there_is_404(admin_page: Client, paper: Model) -> None:
    assert admin_page.post("/catalog/m/paper/aliases/", {"alias": "x", "version": 9}).status_code == 404


def test_a_version_is_published_archived_restored_and_deleted(admin_page: Client, paper: Model) -> None:
    version = Version.objects.create(model=paper, number=3, state="verified")
    for action, state in (("publish", "ready"), ("archive", "archived"), ("restore", "ready"), ("delete", "deleted")):
        act(admin_page, f"/catalog/m/paper/3/do/{action}/")
        version.refresh_from_db()
        assert version.state == state
    assert admin_page.post("/catalog/m/paper/3/do/explode/").status_code == 404


def test_what_an_alias_points_at_is_not_deleted(admin_page: Client, paper: Model) -> None:
    Alias.objects.create(model=paper, name="production", version=paper.versions.get(number=1))
    assert "paper@production" in act(admin_page, "/catalog/m/paper/1/do/delete/")
    assert paper.versions.get(number=1).state == "ready"


def test_about_and_access_are_saved(admin_page: Client, paper: Model) -> None:
    group = Group.objects.create(name="research")
    act(admin_page, "/catalog/m/paper/edit/", description="Pressed", tags="New old", access="groups", groups=[group.pk])
    paper.refresh_from_db()
    assert (paper.description, paper.tags, paper.access) == ("Pressed", "new old", Access.GROUPS)
    assert list(paper.groups.all()) == [group]
    assert "group" in act(admin_page, "/catalog/m/paper/edit/", description="", tags="", access="groups")


def test_notes_are_saved(admin_page: Client, paper: Model) -> None:
    act(admin_page, "/catalog/m/paper/1/edit/", notes="Better at maths", tags="tuned", licence="Apache-2.0")
    version = paper.versions.get(number=1)
    assert (version.notes, version.tags, version.licence) == ("Better at maths", "tuned", "Apache-2.0")


def test_adapters_of_the_version_are_loaded_beside_it(admin_page: Client, paper: Model,
                                                      make_model: Callable[..., Model]) -> None:
    base = paper.versions.get(number=1)
    adapter = make_model("tuned", kind="adapter").versions.get()
    assert "tuned:1" not in admin_page.get("/catalog/m/paper/1/").content.decode()
    Version.objects.filter(pk=adapter.pk).update(parent=base)
    assert "tuned:1" in admin_page.get("/catalog/m/paper/1/").content.decode()
    answer = admin_page.post("/catalog/m/paper/1/load/", {"max_num_seqs": 4, "adapters": adapter.pk, "anywhere": "on"})
    assert answer.status_code == 302
    assert list(Deployment.objects.get().adapters.all()) == [adapter]


def test_a_load_is_asked_for_with_its_settings_and_ended(admin_page: Client, paper: Model) -> None:
    answer = admin_page.post("/catalog/m/paper/1/load/", {
        "place": "", "mode": "int8", "max_model_len": 512, "max_num_seqs": 4, "idle_seconds": 60, "anywhere": "on"})
    assert answer.status_code == 302
    row = Deployment.objects.get()
    assert (row.wanted, row.node, row.max_model_len, row.max_num_seqs, row.idle_seconds, row.load_on_pick) == (
        True, "", 512, 4, 60, False)
    act(admin_page, f"/catalog/deployments/{row.pk}/unload/")
    row.refresh_from_db()
    assert not row.wanted
    act(admin_page, f"/catalog/deployments/{row.pk}/load/")
    row.refresh_from_db()
    assert row.wanted


@pytest.mark.parametrize(("fields", "word"), [
    ({"max_model_len": 99999}, "2,048"), ({"max_num_seqs": 0}, "Requests at once:"), ({"mode": "magic"}, "Mode:"),
    ({"device": "abacus"}, "Device:"), ({"adapters": "9"}, "Adapters:"),
    ({"max_model_len": "many"}, "Context:"), ({"kv_cache_bytes": -1}, "KV budget:")])
def test_settings_that_cannot_be_are_refused_beside_the_plan(admin_page: Client, paper: Model,
                                                             fields: dict[str, object], word: str) -> None:
    answer = admin_page.post("/catalog/m/paper/1/load/", {"mode": "int8", "max_num_seqs": 4, **fields})
    assert answer.status_code == 409
    assert "load-refused" in answer.content.decode()
    assert word.lower() in answer.content.decode().lower()
    assert not Deployment.objects.exists()


def test_a_load_that_does_not_fit_is_refused_with_its_arithmetic(
        admin_page: Client, demo_version: Version, node: Callable[..., Node]) -> None:
    node("small", free_bytes=200_000_000)
    answer = admin_page.post("/catalog/m/smollm2/1/load/", {"place": "small", "max_num_seqs": 32})
    shown = answer.content.decode()
    assert answer.status_code == 409
    assert "does not fit on small" in shown
    assert "plan-lines" in shown
    assert not Deployment.objects.exists()


@pytest.fixture
def node(db: None) -> Callable[..., Node]:
    """Make a machine that has just reported itself."""

    def make(name: str, *, memory_bytes: int = 8_000_000_000, free_bytes: int = 4_000_000_000) -> Node:
        device = {"name": "2 cores", "kind": "cpu", "index": 0, "memory_bytes": memory_bytes, "free_bytes": free_bytes}
        return Node.objects.create(name=name, device="2 cores", devices=[device], memory_bytes=memory_bytes,
                                   free_bytes=free_bytes)

    return make
