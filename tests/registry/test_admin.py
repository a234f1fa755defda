"""The admin shows every table of the registry and changes nothing of a version."""

from pathlib import Path

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from registry.apps import RegistryConfig
from registry.models import (
    Action,
    Alias,
    Artifact,
    AuditEntry,
    Blob,
    Deployment,
    ImportJob,
    Kind,
    Node,
    Role,
    Upload,
    Version,
    VersionState,
)
from registry.services.audit import audit_record
from tests.registry.making import make_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_every_table_is_registered() -> None:
    tables = apps.get_app_config(RegistryConfig.name).get_models()
    assert all(admin.site.is_registered(table) for table in tables)


@pytest.fixture
def version() -> Version:
    """A ready version with one file, whose content isn't there: the admin shows rows."""
    version = make_version("small")
    blob = Blob.objects.create(sha256="5" * 64, size=3)
    Artifact.objects.create(version=version, path="notes", role=Role.OTHER, blob=blob)
    audit_record(by=None, action=Action.EDIT, subject=version)
    return version


def test_lists_and_pages_are_shown(client: Client, version: Version) -> None:
    Deployment.objects.create(version=version)
    Node.objects.create(name="here")
    Alias.objects.create(model=version.model, name="small", version=version)
    root = User.objects.get()
    upload = Upload.objects.create(owner=root, name="s", files=[], chunk_bytes=1)
    ImportJob.objects.create(owner=root, name="s", upload=upload)
    for table in apps.get_app_config(RegistryConfig.name).get_models():
        name = table._meta.model_name
        listing = client.get(reverse(f"admin:registry_{name}_changelist"), {"q": "s"})
        assert listing.status_code == 200
        row = admin.site.get_model_admin(table).get_queryset(listing.wsgi_request).first()
        assert row is not None, name
        assert client.get(reverse(f"admin:registry_{name}_change", args=[row.pk])).status_code == 200


def test_a_version_shows_its_files_and_can_not_be_changed(
    client: Client, demo_version: Version, demo_chat_path: Path
) -> None:
    url = reverse("admin:registry_version_change", args=[demo_version.pk])
    page = client.get(url).content.decode()
    assert demo_chat_path.name in page
    assert demo_version.artifacts.get(path="config.json").blob_id in page
    assert client.post(url, {"state": "draft"}).status_code == 403
    assert client.post(reverse("admin:registry_version_delete", args=[demo_version.pk])).status_code == 403
    assert client.get(reverse("admin:registry_version_add")).status_code == 403


def test_the_services_are_actions_and_say_why_they_refuse(client: Client, version: Version) -> None:
    def act(table: str, action: str, pk: int) -> str:
        answer = client.post(reverse(f"admin:registry_{table}_changelist"),
                             {"action": action, "_selected_action": [pk]}, follow=True)
        return " ".join(str(message) for message in answer.context["messages"])

    assert act("version", "load", version.pk) == "Load: 1."
    deployment = Deployment.objects.get()
    assert "can't be archived while it is loaded or about to be" in act("version", "archive", version.pk)
    assert act("deployment", "unload", deployment.pk) == "Unload: 1."
    assert act("version", "archive", version.pk) == "Archive: 1."
    version.refresh_from_db()
    assert version.state == VersionState.ARCHIVED
    assert "only a ready version is loaded" in act("deployment", "load", deployment.pk)
    assert act("deployment", "remove", deployment.pk) == "Remove: 1."
    actors = AuditEntry.objects.exclude(action="edit").values_list("actor", flat=True)
    assert set(actors) == {"root"} and len(actors) == 4


def test_settings_of_a_deployment_are_held_to_the_same_rules(client: Client, version: Version) -> None:
    deployment = Deployment.objects.create(version=version, wanted=False)
    url = reverse("admin:registry_deployment_change", args=[deployment.pk])
    values = {"version": version.pk, "mode": "float32", "max_model_len": 128, "max_num_seqs": 8}
    assert client.post(url, values | {"max_model_len": 10**6}).context["errors"]
    assert client.post(url, values).status_code == 302
    deployment.refresh_from_db()
    assert (deployment.mode, deployment.max_model_len, deployment.wanted) == ("float32", 128, False)
    entry = AuditEntry.objects.get(action=Action.SETTINGS)
    assert entry.actor == "root" and "max_model_len 128" in entry.words


def test_a_deployment_can_be_set_up_ahead_of_its_first_load(client: Client, version: Version) -> None:
    values = {"version": version.pk, "node": "here", "mode": "float32", "max_num_seqs": 8}
    assert client.post(reverse("admin:registry_deployment_add"), values).status_code == 302
    deployment = Deployment.objects.get()
    assert (deployment.version, deployment.node) == (version, "here")
    assert (deployment.mode, deployment.wanted) == ("float32", False)


def test_an_adapter_of_another_version_is_refused_in_words(client: Client, version: Version) -> None:
    deployment = Deployment.objects.create(version=version, wanted=False)
    other = make_version("poet", kind=Kind.ADAPTER)
    url = reverse("admin:registry_deployment_change", args=[deployment.pk])
    answer = client.post(url, {"mode": "float32", "max_num_seqs": 8, "adapters": [other.pk]}, follow=True)
    assert "is not an adapter of small:1" in answer.content.decode()
    deployment.refresh_from_db()
    assert deployment.mode == "int8"
