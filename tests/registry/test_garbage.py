"""The store's content: damage is found and named, and what nobody uses any more is freed."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from registry.blobs import blob_path
from registry.models import Version
from registry.services.catalog import version_delete
from registry.services.imports import version_import
from registry.staging import staging_folder
from tests.tiny_models import write_tiny_llama

pytestmark = pytest.mark.django_db


@pytest.fixture
def version(tmp_path: Path) -> Version:
    folder = tmp_path / "llama"
    folder.mkdir()
    write_tiny_llama(folder)
    return version_import(path=folder, name="tiny")


def verify_blobs() -> str:
    out = StringIO()
    try:
        call_command("verify_blobs", stdout=out)
    except CommandError as error:
        return out.getvalue() + str(error)
    return out.getvalue()


def test_damage_is_found_and_named_with_who_uses_it(version: Version) -> None:
    assert verify_blobs() == "All content is as it should be.\n"
    paths = {name: blob_path(version.artifacts.get(path=name).blob_id)
             for name in ("config.json", "model.safetensors", "tokenizer.json")}
    for path in paths.values():
        path.chmod(0o644)
    paths["config.json"].unlink()
    paths["tokenizer.json"].write_text("{}")
    content = bytearray(paths["model.safetensors"].read_bytes())
    content[-1] ^= 1
    paths["model.safetensors"].write_bytes(content)
    said = verify_blobs()
    assert "is missing: tiny:1/config.json" in said
    assert "has 2 bytes instead of" in said and "tiny:1/tokenizer.json" in said
    assert "has other content than its name says: tiny:1/model.safetensors" in said
    assert "3 blobs are damaged" in said


def test_the_collection_says_what_it_frees(version: Version) -> None:
    with staging_folder() as alive:
        dead = alive.parent / "dead"
        dead.mkdir()
        dead.with_suffix(".lock").touch()
        version_delete(version=version, by=None)
        out = StringIO()
        call_command("collect_garbage", "--dry-run", stdout=out)
        assert "would be freed" in out.getvalue()
        call_command("collect_garbage", stdout=out)
        assert alive.exists() and not dead.exists()
    count = len(set(out.getvalue().splitlines()[:-1]))
    assert f"{count - 1} blobs, " in out.getvalue().splitlines()[-1]
    assert "0 folders, 1 stagings and 0 uploads removed." in out.getvalue()
    call_command("collect_garbage", stdout=out)
    assert out.getvalue().splitlines()[-1].startswith("0 blobs, 0 bytes freed")
