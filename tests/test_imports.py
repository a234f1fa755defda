"""The direction of imports: the site starts without torch, and the contracts really refuse what they forbid."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINTER = Path(sys.executable).with_name("lint-imports")

START_DJANGO = """
import sys
import webapp.config.asgi
from importlib import import_module
from django.apps import apps
for app in apps.get_app_configs():
    if app.name.partition(".")[0] in ("registry", "webapp"):
        for name in ("admin", "forms", "selectors", "services", "tasks", "urls", "views", "consumer"):
            try:
                import_module(f"{app.name}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{app.name}.{name}":
                    raise
print(*sorted({"torch", "transformers", "numba", "safetensors"} & set(sys.modules)))
"""

FORBIDDEN = [
    ("registry/blobs.py", "import torch", "the site and the registry never import torch"),
    ("registry/blobs.py", "import celery", "the registry knows no pages"),
    ("registry/blobs.py", "import webapp.chat.models", "the registry knows no pages"),
    ("registry/blobs.py", "import inference.engine.batch", "the registry knows no pages"),
    ("webapp/chat/views.py", "import torch", "the site and the registry never import torch"),
    ("webapp/chat/views.py", "import inference.client", "pages reach models through services"),
    ("webapp/chat/views.py", "import registry.models", "pages reach models through services"),
    ("webapp/serving/claims.py", "import inference.engine.batch", "serving and the API meet the engine only through"),
    ("webapp/api/chat.py", "import inference.engine.batch", "serving and the API meet the engine only through"),
    ("webapp/serving/claims.py", "import webapp.chat.models", "layers"),
    ("inference/spec.py", "import django.conf", "inference knows no web framework"),
    ("inference/spec.py", "import registry.models", "inference knows no web framework"),
    ("inference/text/prompt.py", "import transformers", "inspection, text, specs, frames and scheduling"),
    ("inference/engine/scheduler.py", "import torch", "inspection, text, specs, frames and scheduling"),
    ("inference/planner/layout.py", "import numpy", "the planner is arithmetic"),
    # At any depth: the page imports nothing wrong itself.
    ("inference/spec.py", "import torch", "the site and the registry never import torch"),
]


def test_django_starts_with_all_apps_and_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", START_DJANGO], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source that a test may spoil."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("inference", "registry", "webapp"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(tree: Path) -> tuple[int, str]:
    """Run the linter on that tree and not on the installed source; return its status and output."""
    env = os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "200"}
    done = subprocess.run([str(LINTER), "--no-cache"], cwd=tree, env=env, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


def test_the_contracts_are_kept(tree: Path) -> None:
    status, output = lint(tree)
    assert status == 0, output


@pytest.mark.parametrize(("file", "line", "contract"), FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(tree: Path, file: str, line: str, contract: str) -> None:
    source = (tree / file).read_text()
    (tree / file).write_text(f"{source}\n{line}\n")
    try:
        status, output = lint(tree)
    finally:
        (tree / file).write_text(source)
    assert status == 1
    assert any(contract in row and "BROKEN" in row for row in output.splitlines()), output
