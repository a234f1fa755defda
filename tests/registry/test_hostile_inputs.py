"""More than a hundred hostile or broken inputs, each refused with its own reason, quickly and in little memory."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.registry.hostile_archives import ARCHIVES
from tests.registry.hostile_models import GGUF, MODELS
from tests.tiny_models import write_tiny_llama

MOST_SECONDS = 5.0
MOST_BYTES = 300 * 10**6
ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_tiny_llama(folder)
    return folder


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Send a job to the process that forks for each."""
    process = subprocess.Popen([sys.executable, "-m", "tests.registry.hostile_runner"], cwd=ROOT, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None

    def ask(**job: Any) -> dict[str, Any]:
        print(json.dumps(job, default=str), file=process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        assert answer["seconds"] < MOST_SECONDS
        assert answer["peak_bytes"] < MOST_BYTES
        return answer

    with process:
        yield ask
        process.stdin.close()


def test_the_good_model_is_taken(run: Run, good: Path) -> None:
    assert run(folder=good, kind="chat")["refusals"] == []


@pytest.mark.parametrize("case", MODELS | GGUF)
def test_a_hostile_model_is_refused_with_its_own_reason(case: str, run: Run, good: Path, tmp_path: Path) -> None:
    change, words = (MODELS | GGUF)[case]
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    change(folder)
    refusals = run(folder=folder, kind="chat")["refusals"]
    assert any(re.search(words, refusal) for refusal in refusals), refusals


@pytest.mark.parametrize("case", ARCHIVES)
def test_a_hostile_archive_is_refused_and_nothing_lies_outside(case: str, run: Run, tmp_path: Path) -> None:
    name, make, words = ARCHIVES[case]
    archive, folder = tmp_path / "archive", tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    make(archive)
    (refusal,) = run(archive=archive, folder=folder, name=name)["refusals"]
    assert re.search(words, refusal), refusal
    assert refusal.startswith(f"{name}: ")
    assert not list(tmp_path.glob("deep/evil*")) and not list(tmp_path.glob("evil*"))


def test_there_are_enough_of_them() -> None:
    assert len(MODELS) + len(GGUF) + len(ARCHIVES) >= 40
