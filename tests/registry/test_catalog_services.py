"""Describing, archiving and deleting: what is refused, and what stays."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from registry.blobs import blob_path
from registry.errors import ChangeRefused, NotAllowed
from registry.garbage import garbage_collect
from registry.models import AuditEntry, Deployment, DeploymentState, Kind, Model, Version, VersionState
from registry.selectors import version_folder
from registry.services.aliases import alias_set
from registry.services.catalog import model_edit, version_archive, version_delete, version_edit, version_restore
from registry.services.imports import version_import
from registry.services.versions import version_publish
from tests.registry.making import make_version
from tests.tiny_models import write_tiny_llama

pytestmark = pytest.mark.django_db


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    folder = tmp_path / "llama"
    folder.mkdir()
    write_tiny_llama(folder)
    return folder


def test_people_describe_models_and_versions_and_each_change_is_in_the_log() -> None:
    version = make_version()
    model_edit(model=version.model, by=None, description="Small", tags=["Tiny", "test tiny"])
    version_edit(version=version, by=None, notes="Try it", tags=["fp8"], licence="apache-2.0")
    version_edit(version=version, by=None, notes="Try it")
    version.refresh_from_db()
    assert (version.model.tag_list, version.tag_list, version.notes) == (["test", "tiny"], ["fp8"], "Try it")
    assert list(AuditEntry.objects.order_by("pk").values_list("subject", "words")) == [
        ("tiny", "description: Small; tags: test tiny"), ("tiny:1", "notes: Try it; tags: fp8; licence: apache-2.0")]
    with pytest.raises(ChangeRefused, match="tags"):
        version_edit(version=version, by=None, tags=["x" * 600])
    with pytest.raises(NotAllowed):
        version_edit(version=version, by=User.objects.create_user("ada"), notes="mine")


def test_archiving_takes_a_version_out_of_use_and_restoring_brings_it_back() -> None:
    version = make_version()
    assert version_archive(version=version, by=None).state == VersionState.ARCHIVED
    with pytest.raises(ChangeRefused, match="archived and can't be archived"):
        version_archive(version=version, by=None)
    assert version_restore(version=version, by=None).state == VersionState.READY


@pytest.mark.parametrize("state, wanted",
                         [("loaded", True), ("loading", True), ("unloading", False), ("unloaded", True)])
def test_a_version_that_is_loaded_or_about_to_be_is_neither_deleted_nor_archived(state: str, wanted: bool) -> None:
    version = make_version()
    Deployment.objects.create(version=version, state=state, wanted=wanted)
    for service in (version_delete, version_archive):
        with pytest.raises(ChangeRefused, match="tiny:1 can't be .* while it is loaded or about to be"):
            service(version=version, by=None)


def test_a_version_with_an_alias_or_an_adapter_is_not_deleted() -> None:
    version = make_version()
    alias = alias_set(model=version.model, name="production", version=version, by=None)
    with pytest.raises(ChangeRefused, match="tiny@production points at it"):
        version_delete(version=version, by=None)
    alias.delete()
    adapter = make_version("poet", kind=Kind.ADAPTER, parent=version)
    with pytest.raises(ChangeRefused, match="poet:1 is an adapter of it"):
        version_delete(version=version, by=None)
    version_delete(version=adapter, by=None)
    Deployment.objects.create(version=version, wanted=False, state=DeploymentState.UNLOADED)
    assert version_delete(version=version, by=None).state == VersionState.DELETED
    assert not Deployment.objects.exists()


def test_deleting_keeps_what_others_use_and_the_collection_frees_the_rest(llama: Path) -> None:
    version_import(path=llama, name="one")
    (llama / "README.md").write_text("---\nlicense: mit\n---\nOnly here")
    version = version_import(path=llama, name="two")
    assert version.licence == "mit"
    folder = version_folder(version)
    card = version.artifacts.get(path="README.md").blob
    shared = version.artifacts.get(path="model.safetensors").blob
    version_delete(version=version, by=None)
    assert blob_path(card.pk).exists()
    planned = garbage_collect(dry_run=True)
    assert (planned.blobs, planned.blob_bytes) == ([card.pk], card.size)
    assert blob_path(card.pk).exists()
    freed = garbage_collect()
    assert (freed.blobs, freed.folders) == ([card.pk], [folder.name])
    assert blob_path(shared.pk).exists() and not blob_path(card.pk).exists() and not folder.exists()
    assert garbage_collect().blobs == []


def test_a_deleted_number_is_not_given_again(llama: Path) -> None:
    version_delete(version=version_import(path=llama, name="tiny"), by=None)
    assert str(version_import(path=llama, name="tiny")) == "tiny:2"
    assert [str(version) for version in Version.objects.all()] == ["tiny:2", "tiny:1"]


def test_a_verified_version_waits_until_it_is_published(llama: Path) -> None:
    version = version_import(path=llama, name="tiny", publish=False)
    assert version.state == VersionState.VERIFIED
    assert version_publish(version=version, by=None).state == VersionState.READY
    version_archive(version=version, by=None)
    with pytest.raises(ChangeRefused, match="only a verified one is published"):
        version_publish(version=version, by=None)
    entries = AuditEntry.objects.filter(model=Model.objects.get()).order_by("pk")
    assert list(entries.values_list("action", flat=True)) == ["import", "publish", "archive"]
