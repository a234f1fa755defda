"""What differs between two versions is said by file, by key and by size."""

import json
from pathlib import Path

import pytest

from registry.diff import version_diff
from registry.services.imports import version_import
from tests.tiny_models import write_tiny_llama

pytestmark = pytest.mark.django_db


def test_files_values_vocabulary_and_sizes_are_compared(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    write_tiny_llama(folder)
    old = version_import(path=folder, name="tiny")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5, "x_extra": {"a": 1}}))
    (folder / "README.md").write_text("A card")
    (folder / "chat_template.jinja").unlink()
    new = version_import(path=folder, name="tiny")
    found = version_diff(old=old, new=new)
    assert {(file.path, file.change) for file in found.files if file.change != "same"} == {
        ("README.md", "added"), ("chat_template.jinja", "removed"), ("config.json", "changed")}
    assert [(value.file, value.key, value.old, value.new) for value in found.values] == [
        ("config.json", "rms_norm_eps", "1e-06", "1e-05"), ("config.json", "x_extra.a", "", "1")]
    assert found.same_vocabulary is True and found.unreadable == ()
    assert found.new_size - found.old_size == sum(file.new_size - file.old_size for file in found.files)
