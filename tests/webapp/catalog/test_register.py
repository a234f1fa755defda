"""The register wizard: what it takes from the server's disk, and the uploads that browsers send in chunks."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from registry.models import ImportJob, Upload
from webapp.catalog import register

pytestmark = pytest.mark.django_db
FILES = {"config.json": b'{"model_type": "llama"}', "model.safetensors": bytes(range(256)) * 20_000}  # two chunks


@pytest.fixture(autouse=True)
def dispatched(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The ids of the imports that were handed to the workers; there are none in these tests."""
    sent: list[object] = []
    monkeypatch.setattr(register, "import_dispatch", sent.append)
    return sent


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def post_json(client: Client, url: str, body: Any) -> Any:
    return client.post(url, json.dumps(body), content_type="application/json")


def begin(client: Client) -> dict[str, Any]:
    answer = post_json(client, "/catalog/uploads/", {
        "name": "sent", "files": [{"path": path, "size": len(body)} for path, body in FILES.items()]})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def send(client: Client, plan: dict[str, Any], file: int, chunk: int, body: bytes | None = None,
         digest: str | None = None) -> Any:
    path = plan["files"][file]["path"]
    size = plan["chunk_bytes"]
    part = FILES[path][chunk * size:(chunk + 1) * size] if body is None else body
    return client.post(f"{plan['url']}{file}/{chunk}/", part, content_type="application/octet-stream",
                       headers={"X-Chunk-SHA256": digest or sha(part)})


def test_an_upload_goes_on_where_it_was_and_becomes_an_import(
        admin_page: Client, dispatched: list[object], django_capture_on_commit_callbacks: Callable[..., Any]) -> None:
    plan = begin(admin_page)
    assert plan["missing"] == {"0": [0], "1": [0, 1]}
    assert send(admin_page, plan, 1, 0).status_code == 204
    again = begin(admin_page)
    assert (again["id"], again["missing"]) == (plan["id"], {"0": [0], "1": [1]})
    assert again["done"] == plan["chunk_bytes"]
    assert "sent" in admin_page.get("/catalog/register/").content.decode()
    digests = {path: sha(body) for path, body in FILES.items()}
    early = post_json(admin_page, f"{plan['url']}finish/", {"sha256": digests})
    assert (early.status_code, early.json()["retry"]) == (409, True)
    for file, chunk in ((0, 0), (1, 1)):
        assert send(admin_page, plan, file, chunk).status_code == 204
    with django_capture_on_commit_callbacks(execute=True):
        done = post_json(admin_page, f"{plan['url']}finish/", {"sha256": digests, "kind": "chat"})
    job = ImportJob.objects.get()
    assert done.json() == {"url": f"/catalog/imports/{job.pk}/"}
    assert (job.name, job.kind, job.publish, dispatched) == ("sent", "chat", False, [job.pk])
    assert admin_page.get(done.json()["url"]).status_code == 200
    assert Upload.objects.get().state == "finished"


def test_a_damaged_chunk_may_be_sent_again_and_a_foreign_one_may_not(admin_page: Client) -> None:
    plan = begin(admin_page)
    damaged = send(admin_page, plan, 0, 0, body=b"x" * len(FILES["config.json"]), digest="0" * 64)
    assert (damaged.status_code, damaged.json()["retry"]) == (409, True)
    assert "damaged" in damaged.json()["errors"]["__all__"][0]
    short = send(admin_page, plan, 1, 0, body=b"short")
    assert (short.status_code, short.json()["retry"]) == (409, True)
    for file, chunk in ((0, 1), (1, 2), (7, 0)):
        answer = send(admin_page, plan, min(file, 1), chunk) if file < 2 else admin_page.post(
            f"{plan['url']}{file}/{chunk}/", b"x", content_type="application/octet-stream")
        assert (answer.status_code, answer.json()["retry"]) == (400, False)


@pytest.mark.parametrize("body", [
    [], {}, {"name": "x"}, {"name": 1, "files": []}, {"name": "x", "files": ["a"]}, {"name": "x", "files": []},
    {"name": "Not Allowed", "files": [{"path": "a", "size": 1}]},
    {"name": "x", "files": [{"path": "../a", "size": 1}]}, {"name": "x", "files": [{"path": "a", "size": -1}]},
    {"name": "x", "files": [{"path": "a", "size": 2**60}]}])
def test_an_upload_that_cannot_be_is_refused_in_words(admin_page: Client, body: Any) -> None:
    answer = post_json(admin_page, "/catalog/uploads/", body)
    assert answer.status_code == 400
    assert answer.json()["errors"]["__all__"][0]
    assert not Upload.objects.exists()


def test_what_is_no_json_is_refused(admin_page: Client) -> None:
    for body in (b"{", b"[" * 100_000, b"\xff\xfe"):
        assert admin_page.post("/catalog/uploads/", body, content_type="application/json").status_code == 400


def test_uploads_are_for_administrators_and_each_for_its_owner(admin_page: Client, page: Client,
                                                               client: Client) -> None:
    plan = begin(admin_page)
    other = Client()
    other.force_login(User.objects.create_superuser("other", password="a long pass phrase"))
    for stranger, status in ((client, 401), (page, 404), (other, 404)):
        assert stranger.get(plan["url"]).status_code == status
        assert send(stranger, plan, 0, 0).status_code == status
        assert post_json(stranger, f"{plan['url']}finish/", {"sha256": {}}).status_code == status
    assert post_json(client, "/catalog/uploads/", {}).status_code == 401
    assert post_json(page, "/catalog/uploads/", {}).status_code == 404
    assert other.post(f"{plan['url']}cancel/").status_code == 404
    assert admin_page.post(f"{plan['url']}cancel/").status_code == 302
    assert send(admin_page, plan, 0, 0).status_code == 400


def test_a_folder_of_the_server_becomes_an_import(
        admin_page: Client, dispatched: list[object], settings: Any, tmp_path: Path,
        django_capture_on_commit_callbacks: Callable[..., Any]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    settings.PARLEY_IMPORT_ROOTS = [tmp_path]
    shown = admin_page.get("/catalog/register/").content.decode()
    assert str(tmp_path / "model") in shown
    assert str(tmp_path / "other.gguf") in shown
    with django_capture_on_commit_callbacks(execute=True):
        answer = admin_page.post("/catalog/register/", {
            "source": "folder", "name": "folded", "path_folder": str(tmp_path / "model"),
            "path_gguf": str(tmp_path / "other.gguf")})
    job = ImportJob.objects.get()
    assert answer.headers["Location"] == f"/catalog/imports/{job.pk}/"
    assert (job.path, job.publish, dispatched) == (str(tmp_path / "model"), False, [job.pk])


@pytest.mark.parametrize(("fields", "word"), [
    ({"name": "Not Allowed"}, "Not Allowed"), ({"name": ""}, "Name"), ({"path_folder": "/etc"}, "/etc"),
    ({"path_folder": ""}, "Path"), ({"kind": "magic"}, "Kind"), ({"parent": "missing:1"}, "missing:1")])
def test_an_import_that_cannot_be_is_refused_in_words_and_keeps_what_was_typed(
        admin_page: Client, settings: Any, tmp_path: Path, fields: dict[str, str], word: str) -> None:
    (tmp_path / "model").mkdir()
    settings.PARLEY_IMPORT_ROOTS = [tmp_path]
    good = {"source": "folder", "name": "folded", "path_folder": str(tmp_path / "model")}
    answer = admin_page.post("/catalog/register/", good | fields)
    assert answer.status_code == 400
    assert word in answer.content.decode()
    assert "register-error" in answer.content.decode()
    assert not ImportJob.objects.exists()


def test_an_import_that_waits_can_be_cancelled(admin_page: Client, administrator: User) -> None:
    job = ImportJob.objects.create(owner=administrator, name="folded", path="/srv/models/folded")
    assert "Waiting for a worker" in admin_page.get(f"/catalog/imports/{job.pk}/").content.decode()
    admin_page.post(f"/catalog/imports/{job.pk}/cancel/")
    job.refresh_from_db()
    assert job.state == "cancelled"
    assert "Nothing of it is kept" in admin_page.get(f"/catalog/imports/{job.pk}/").content.decode()


def test_a_refused_import_says_why(admin_page: Client, administrator: User) -> None:
    job = ImportJob.objects.create(owner=administrator, name="folded", state="refused", checks={
        "outcome": "refuse", "results": [{"name": "Tensors", "outcome": "refuse", "message": "is cut off",
                                          "file": "model.safetensors", "tensor": "lm_head.weight", "seconds": 0.1}],
        "not_run": ["Template"]}, reason="model.safetensors: is cut off")
    shown = admin_page.get(f"/catalog/imports/{job.pk}/").content.decode()
    for word in ("import-refused", "is cut off", "lm_head.weight", "needs what another check refused"):
        assert word in shown
