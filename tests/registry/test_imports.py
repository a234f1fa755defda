"""Importing models: what becomes of a good one, and what is left of one that is refused."""

import fcntl
import hashlib
import json
import os
import pickle
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from django.core.management import CommandError, call_command
from django.db import connection, connections
from safetensors.torch import load_file, save_file

from registry.blobs import blob_path
from registry.contents import DERIVED_NAMES
from registry.models import Artifact, Blob, Kind, Model, Role, Version, VersionState
from registry.services.imports import ImportRefused, version_import
from registry.staging import StagedFile, staging_folder
from tests.tiny_models import tiny_tokenizer, write_tiny_gguf, write_tiny_llama

pytestmark = pytest.mark.django_db


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A complete tiny chat model in Hugging Face layout."""
    folder = tmp_path / "llama"
    folder.mkdir()
    write_tiny_llama(folder)
    return folder


def stored(tmp_path: Path) -> set[str]:
    """Return the names of all files under PARLEY_HOME, locks left out."""
    home = tmp_path / "home"
    return {path.name for path in home.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_folder_becomes_a_ready_version_with_its_files(llama: Path, tmp_path: Path) -> None:
    (llama / "README.md").write_text("# A card")
    (llama / ".gitattributes").write_text("hidden")
    (llama / "extra").mkdir()
    (llama / "extra" / "notes.txt").write_text("kept")
    version = version_import(path=llama, name="tiny")
    assert (str(version), version.state, version.model.kind) == ("tiny:1", VersionState.READY, Kind.CHAT)
    assert version.context_length == 256
    assert version.parameters == sum(tensor.numel() for tensor in load_file(llama / "model.safetensors").values())
    roles = dict(version.artifacts.values_list("path", "role"))
    assert roles == {
        "README.md": Role.CARD, "chat_template.jinja": Role.CHAT_TEMPLATE, "config.json": Role.CONFIG,
        "extra/notes.txt": Role.OTHER, "generation_config.json": Role.GENERATION_CONFIG,
        "model.safetensors": Role.WEIGHTS, "tokenizer.json": Role.TOKENIZER, "tokenizer_config.json": Role.TOKENIZER}
    for artifact in version.artifacts.select_related("blob"):
        content = (llama / artifact.path).read_bytes()
        assert artifact.blob.pk == hashlib.sha256(content).hexdigest()
        assert artifact.blob.size == len(content)
        assert blob_path(artifact.blob.pk).read_bytes() == content
        assert blob_path(artifact.blob.pk).stat().st_mode & 0o222 == 0
    assert stored(tmp_path) == set(Blob.objects.values_list("pk", flat=True))


def test_the_demo_chat_model_gets_its_derived_files(demo_chat_path: Path) -> None:
    version = version_import(path=demo_chat_path, name="smollm2")
    assert (version.model.kind, version.parameters, version.context_length) == (Kind.CHAT, 134_515_008, 8192)
    paths = set(version.artifacts.values_list("path", flat=True))
    assert paths == {demo_chat_path.name, *DERIVED_NAMES}
    config = json.loads(blob_path(version.artifacts.get(path="config.json").blob_id).read_bytes())
    assert (config["model_type"], config["num_hidden_layers"]) == ("llama", 30)


def test_the_demo_embedding_model_is_known_by_its_files(demo_embedding_path: Path) -> None:
    version = version_import(path=demo_embedding_path, name="minilm")
    assert (version.model.kind, version.context_length) == (Kind.EMBEDDING, 256)  # sentence_bert_config, not 512
    assert version.parameters == 22_713_216
    assert version.artifacts.filter(path="1_Pooling/config.json").exists()


def test_the_same_content_gives_the_same_version(llama: Path, tmp_path: Path) -> None:
    first = version_import(path=llama, name="tiny")
    assert version_import(path=llama, name="tiny") == first
    gguf = tmp_path / "m.gguf"
    write_tiny_gguf(gguf)
    second = version_import(path=gguf, name="tiny")
    assert str(second) == "tiny:2"
    assert version_import(path=gguf, name="tiny") == second
    assert version_import(path=llama, name="tiny") == first
    assert Version.objects.count() == 2


def test_changed_content_gives_the_next_version_and_shares_the_rest(llama: Path) -> None:
    version_import(path=llama, name="tiny")
    (llama / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    second = version_import(path=llama, name="tiny")
    assert str(second) == "tiny:2"
    assert Artifact.objects.count() == 12
    assert Blob.objects.count() == 7


def test_another_name_shares_the_blobs(llama: Path) -> None:
    version_import(path=llama, name="tiny")
    blobs = Blob.objects.count()
    assert str(version_import(path=llama, name="other")) == "other:1"
    assert Blob.objects.count() == blobs


def test_numbers_of_rejected_versions_are_not_used_again(llama: Path) -> None:
    version_import(path=llama, name="tiny")
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(ImportRefused, match="'model.layers.2.input_layernorm.weight' is missing"):
        version_import(path=llama, name="tiny")
    rejected = Version.objects.get(model__name="tiny", number=2)
    assert rejected.state == VersionState.REJECTED
    assert "'model.layers.2.input_layernorm.weight' is missing" in rejected.reason
    assert not rejected.artifacts.exists()
    (llama / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 128}))
    assert str(version_import(path=llama, name="tiny")) == "tiny:3"


def changed_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
    return change


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None  # type: ignore[func-returns-value]


def truncated(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 5000)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def outside_link(folder: Path) -> None:
    (folder / "extra.json").symlink_to("/etc/hostname")


def outside_folder_link(folder: Path) -> None:
    (folder / "extra").symlink_to("/etc")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def too_large_vocabulary(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["a new token"])
    tokenizer.save(str(folder / "tokenizer.json"))


def misshapen(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = torch.zeros(65)
    save_file(weights, folder / "model.safetensors")


def torch_pickle(folder: Path) -> None:
    torch.save({"a": torch.zeros(2)}, folder / "weights.dat")


def renamed_pickle(folder: Path) -> None:
    torch.save({"a": torch.zeros(2)}, folder / "model.safetensors")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "pickle by suffix": (written("pytorch_model.bin", b"x"), "pytorch_model.bin: is a pickle by its suffix"),
    "pickle by content": (written("notes.dat", pickle.dumps({"a": 1})), "notes.dat: is a pickle"),
    "torch.save by content": (torch_pickle, "weights.dat: is a pickle"),
    "pickle as safetensors": (renamed_pickle, "model.safetensors: is a pickle or a zip archive"),
    "Python code": (written("modeling_x.py", b"print()"), "modeling_x.py: is program code"),
    "link to a file": (outside_link, "extra.json: is a link"),
    "link to a folder": (outside_folder_link, "extra: is a link"),
    "pipe": (pipe, "pipe: is not a plain file"),
    "no config": (without("config.json"), "config.json: can't be read"),
    "no tokenizer": (without("tokenizer.json"), "tokenizer.json: is missing"),
    "no weights": (without("model.safetensors"), "holds no safetensors and no GGUF weights"),
    "short weights": (truncated, "model.safetensors: tensor .* cut short"),
    "LFS pointer": (written("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer"),
    "second weights": (written("other.safetensors", b"x"), "holds 2 safetensors files but no"),
    "broken config": (written("config.json", b"{"), "config.json: is not valid JSON"),
    "remote code": (changed_config(auto_map={"AutoModel": "x.Y"}), "never run"),
    "unknown architecture": (changed_config(model_type="nosuch"), "the architecture 'nosuch' is not supported"),
    "text for a number": (changed_config(hidden_size="64"), "config.json: hidden_size is '64'"),
    "wrong size": (changed_config(intermediate_size=128), r"expected \[128, 64\]"),
    "misshapen tensor": (misshapen, "'model.norm.weight' has the shape"),
    "end id out of range": (written("generation_config.json", b'{"eos_token_id": 999}'), "generation_config.json: eos"),
    "too many tokens": (too_large_vocabulary, "tokenizer.json: gives ids up to 263, but the embedding has 263 rows"),
    "broken tokenizer": (written("tokenizer.json", b"{}"), "tokenizer.json: is not a tokenizer"),
    "broken template": (written("chat_template.jinja", b"{% for %}"), "line 1 of the chat template"),
    "failing template": (written("chat_template.jinja", b"{{ 1 / 0 }}"), "chat template: fails on a plain chat"),
    "endless template": (written("chat_template.jinja", b"{% for a in range(99999) %}{% for b in range(99999) %}"
                                 b"{% endfor %}{% endfor %}"), "ran for more than 2 seconds"),
    "path too long": (lambda folder: (folder / ("x" * 200) / ("y" * 100)).mkdir(parents=True)
                      or written(f"{'x' * 200}/{'y' * 100}/z", b"z")(folder), "longer than 255 characters"),
    "no word on its kind": (changed_config(architectures=["LlamaModel"]), "give its kind"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_model_leaves_the_disk_as_it_was(case: str, llama: Path, tmp_path: Path) -> None:
    change, words = REFUSED[case]
    change(llama)
    with pytest.raises(ImportRefused, match=words):
        version_import(path=llama, name="tiny")
    assert stored(tmp_path) == set()
    assert not Blob.objects.exists()
    assert not Version.objects.filter(state=VersionState.READY).exists()
    assert not Version.objects.exclude(state=VersionState.REJECTED).exists()


@pytest.mark.parametrize("name", ["", "Upper", "a b", "../x", "a/b", "-a", "a-", "x" * 65, "naïve", "a\n", "a:1"])
def test_a_name_that_is_not_allowed_is_refused(name: str, llama: Path) -> None:
    with pytest.raises(ImportRefused, match="is not allowed"):
        version_import(path=llama, name=name)
    assert not Model.objects.exists()


def test_a_version_of_another_kind_needs_another_name(llama: Path, demo_embedding_path: Path) -> None:
    version_import(path=llama, name="tiny")
    with pytest.raises(ImportRefused, match="tiny is a model for chat"):
        version_import(path=demo_embedding_path, name="tiny")


def test_an_unknown_kind_is_refused(llama: Path) -> None:
    with pytest.raises(ImportRefused, match="kind 'poetry' is not known"):
        version_import(path=llama, name="tiny", kind="poetry")


def test_paths_that_are_no_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    for path, words in ((tmp_path / "nothing", "no such file or folder"), (tmp_path / "empty", "is empty"),
                        (tmp_path / "file.txt", r"give a folder, or one \.gguf file")):
        with pytest.raises(ImportRefused, match=words):
            version_import(path=path, name="tiny")


def test_files_beside_a_gguf_file_win_over_derived_ones(tmp_path: Path) -> None:
    folder = tmp_path / "gguf"
    folder.mkdir()
    write_tiny_gguf(folder / "m.gguf")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    version = version_import(path=folder, name="tiny")
    assert set(version.artifacts.values_list("path", flat=True)) == {"m.gguf", *DERIVED_NAMES}
    template = version.artifacts.get(path="chat_template.jinja").blob_id
    assert blob_path(template).read_text() == "{{ messages[0].content }}"
    assert version_import(path=folder, name="tiny") == version
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    assert version_import(path=folder, name="tiny").number == 2


def test_progress_counts_the_bytes(llama: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    version_import(path=llama, name="tiny", on_progress=lambda *step: seen.append(step))
    size = sum(path.stat().st_size for path in llama.iterdir())
    copied = [step for step in seen if step[0] == "copying"]
    assert copied[-1] == ("copying", size, size)
    assert [done for _, done, _ in copied] == sorted(done for _, done, _ in copied)
    assert ("verifying", size, size) in seen
    assert seen[-1] == ("publishing", size, size)


def test_what_a_dead_import_left_is_removed_and_a_living_one_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "home" / "staging"
    for name in ("dead", "alive"):
        (root / name).mkdir(parents=True)
        (root / name / "model.gguf").write_text(name)
        (root / f"{name}.lock").touch()
    handle = os.open(root / "alive.lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with staging_folder() as own:
            assert {path.name for path in root.iterdir() if path.is_dir()} == {"alive", own.name}
    finally:
        os.close(handle)
    assert not own.exists()


def test_a_version_that_was_being_verified_long_ago_is_rejected(llama: Path) -> None:
    model = Model.objects.create(name="tiny", kind=Kind.CHAT)
    Version.objects.create(model=model, number=1, state=VersionState.VERIFYING, created_at="2020-01-01T00:00:00Z")
    young = Version.objects.create(model=model, number=2, state=VersionState.VERIFYING)
    assert version_import(path=llama, name="tiny").number == 3
    old = Version.objects.get(model=model, number=1)
    assert (old.state, old.reason) == (VersionState.REJECTED, "The import was interrupted.")
    young.refresh_from_db()
    assert young.state == VersionState.VERIFYING


def test_blobs_that_are_damaged_on_disk_are_written_again(llama: Path) -> None:
    version = version_import(path=llama, name="tiny")
    blob = blob_path(version.artifacts.get(path="config.json").blob_id)
    content = blob.read_bytes()
    blob.chmod(0o644)
    blob.write_bytes(b"")
    version_import(path=llama, name="other")
    assert blob.read_bytes() == content


def test_a_failed_transaction_keeps_no_new_blobs(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from registry.services import versions

    def fail(path: str) -> Role:
        raise RuntimeError("the database is gone")

    monkeypatch.setattr(versions, "role_of", fail)
    with pytest.raises(RuntimeError):
        version_import(path=llama, name="tiny")
    assert stored(tmp_path) == set()
    assert "the database is gone" in Version.objects.get().reason


@pytest.mark.django_db(transaction=True)
def test_imports_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    for number in range(4):
        folder = tmp_path / f"m{number}"
        folder.mkdir()
        write_tiny_llama(folder)
        (folder / "README.md").write_text(f"# {number}")
    results: list[Any] = []

    def work(path: Path) -> None:
        try:
            results.append(str(version_import(path=path, name="tiny")))
        except Exception as error:
            results.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(tmp_path / f"m{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["tiny:1", "tiny:2", "tiny:3", "tiny:4"]


@pytest.mark.django_db(transaction=True)
def test_the_same_content_imported_at_once_is_one_ready_version(llama: Path) -> None:
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(version_import(path=llama, name="tiny").pk)
        except Exception as error:
            results.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ready = Version.objects.get(state=VersionState.READY)
    assert results == [ready.pk] * 4
    assert not Version.objects.filter(state=VersionState.VERIFYING).exists()


def test_the_command_prints_the_version(llama: Path) -> None:
    out = StringIO()
    call_command("import_model", str(llama), name="tiny", stdout=out)
    call_command("import_model", str(llama), name="tiny", stdout=out)
    assert out.getvalue() == "tiny:1\ntiny:1\n"


def test_the_command_says_why_not(llama: Path) -> None:
    (llama / "tokenizer.json").unlink()
    with pytest.raises(CommandError, match=r"^tokenizer.json: is missing$") as refusal:
        call_command("import_model", str(llama), name="tiny", stdout=StringIO())
    assert refusal.value.returncode == 1


def test_staged_files_are_compared_with_one_query_for_each_table(llama: Path) -> None:
    from django.test.utils import CaptureQueriesContext

    from registry.services.versions import version_with_content

    version_import(path=llama, name="tiny")
    files = [StagedFile(artifact.path, artifact.blob.size, artifact.blob.pk)
             for artifact in Artifact.objects.select_related("blob")]
    with CaptureQueriesContext(connection) as queries:
        assert version_with_content(name="tiny", files=files) == Version.objects.get()
    assert len(queries) == 3
