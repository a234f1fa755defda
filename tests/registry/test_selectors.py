"""Who may use which version, how versions are named, and the folder that an engine loads."""

import shutil
from pathlib import Path

import pytest
from django.contrib.auth.models import AnonymousUser, User

from inference.artifacts.source import ModelSource
from inference.text.prompt import PromptBuilder
from registry.blobs import blob_path
from registry.errors import BlobMissing
from registry.models import Kind, Model, Version, VersionState
from registry.selectors import version_by_name, version_folder, versions_for
from registry.services.imports import version_import
from tests.tiny_models import write_tiny_gguf

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def versions() -> dict[str, Version]:
    """b:1, b:2 and a:1 are ready, b:3 was rejected; e:1 embeds."""
    made = {}
    for name, kind, numbers in (("b", Kind.CHAT, (1, 2, 3)), ("a", Kind.CHAT, (1,)), ("e", Kind.EMBEDDING, (1,))):
        model = Model.objects.create(name=name, kind=kind)
        for number in numbers:
            state = VersionState.REJECTED if number == 3 else VersionState.READY
            made[f"{name}:{number}"] = Version.objects.create(model=model, number=number, state=state)
    return made


def test_lists_ready_versions_by_name_and_newest_first(user: User, versions: dict[str, Version]) -> None:
    assert [str(version) for version in versions_for(viewer=user)] == ["a:1", "b:2", "b:1", "e:1"]
    assert [str(version) for version in versions_for(viewer=user, kind="embedding")] == ["e:1"]
    assert not versions_for(viewer=AnonymousUser()).exists()


def test_one_version_by_its_key(user: User, versions: dict[str, Version]) -> None:
    assert versions_for(viewer=user).get(pk=versions["b:1"].pk) == versions["b:1"]
    for viewer, pk in ((user, versions["b:3"].pk), (user, 10**6), (AnonymousUser(), versions["b:1"].pk)):
        with pytest.raises(Version.DoesNotExist):
            versions_for(viewer=viewer).get(pk=pk)


def test_versions_by_name(versions: dict[str, Version]) -> None:
    assert version_by_name("b") == versions["b:2"]
    assert version_by_name("b:1") == versions["b:1"]
    for name in ("c", "b:3", "b:9", "b:", "b:x", "b:-1", "b:²", "b:1:1", "", ":", "b:" + "9" * 50):
        with pytest.raises(Version.DoesNotExist):
            version_by_name(name)


def imported(tmp_path: Path, context: int = 256) -> Version:
    path = tmp_path / "m.gguf"
    write_tiny_gguf(path, metadata={"llama.context_length": context})
    return version_import(path=path, name="tiny")


def test_the_folder_of_a_gguf_version_loads_with_the_derived_files(tmp_path: Path) -> None:
    folder = version_folder(imported(tmp_path))
    assert folder == tmp_path / "home" / "versions" / folder.name
    original = ModelSource.open(tmp_path / "m.gguf")
    source = ModelSource.open(folder)
    assert source.decoder_spec() == original.decoder_spec()
    assert source.tensors == original.tensors
    chat = [{"role": "user", "content": "the"}]
    assert PromptBuilder.from_path(folder).chat_ids(chat) == PromptBuilder.from_path(tmp_path / "m.gguf").chat_ids(chat)


def test_the_folder_is_made_once_and_again_when_it_is_gone(tmp_path: Path) -> None:
    version = imported(tmp_path)
    folder = version_folder(version)
    made = folder.stat().st_ino
    assert version_folder(version) == folder
    assert folder.stat().st_ino == made
    shutil.rmtree(folder)
    assert (version_folder(version) / "m.gguf").is_file()


def test_a_folder_left_by_another_database_is_replaced(tmp_path: Path) -> None:
    version = imported(tmp_path)
    folder = version_folder(version)
    other = imported(tmp_path, context=128)
    shutil.rmtree(folder)
    version_folder(other).rename(folder)
    assert ModelSource.open(version_folder(version)).decoder_spec().max_position == 256
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_folder_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: object) -> None:
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr("os.link", no_links)
    folder = version_folder(imported(tmp_path))
    assert (folder / "m.gguf").is_symlink()
    assert ModelSource.open(folder).decoder_spec().max_position == 256


def test_missing_content_is_named(tmp_path: Path) -> None:
    version = imported(tmp_path)
    blob_path(version.artifacts.get(path="m.gguf").blob_id).unlink()
    with pytest.raises(BlobMissing, match=r"tiny:1: the content of m\.gguf is not on this machine"):
        version_folder(version)
