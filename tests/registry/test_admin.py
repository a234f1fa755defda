"""The admin shows every table of the registry and changes nothing of a version."""

from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from registry.apps import RegistryConfig
from registry.models import Alias, Deployment, Node, Version

pytestmark = pytest.mark.django_db
TABLES = ["model", "version", "artifact", "blob", "node", "deployment", "alias", "auditentry"]


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_every_table_is_registered() -> None:
    from django.apps import apps

    tables = apps.get_app_config(RegistryConfig.name).get_models()
    assert all(admin.site.is_registered(table) for table in tables)


@pytest.mark.parametrize("table", TABLES)
def test_lists_and_pages_are_shown(table: str, client: Client, demo_version: Version) -> None:
    Deployment.objects.create(version=demo_version)
    Node.objects.create(name="here")
    Alias.objects.create(model=demo_version.model, name="canary", version=demo_version)
    listing = client.get(reverse(f"admin:registry_{table}_changelist"), {"q": "s"})
    assert listing.status_code == 200
    row = admin.site.get_model_admin(next(
        model for model in admin.site._registry if model._meta.label_lower == f"registry.{table}"
    )).get_queryset(listing.wsgi_request).first()
    page = client.get(reverse(f"admin:registry_{table}_change", args=[row.pk]))
    assert page.status_code == 200


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
