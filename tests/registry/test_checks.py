"""Verification as a whole: its results, its limits, and what becomes of its child process."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from registry.checks import CheckResult, ChecksStopped, Limits, Report, run_checks
from registry.checks.running import checks_for, verify_here
from registry.checks.subject import Subject
from tests.tiny_models import tiny_tokenizer, write_tiny_gguf, write_tiny_llama


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_tiny_llama(folder)
    return folder


@pytest.fixture
def llama(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "llama"))


def warnings(report: Report) -> str:
    return "\n".join(result.message for result in report.warnings)


def test_a_good_model_passes_every_check_in_the_child(good: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    results: list[CheckResult] = []
    report = run_checks(good, kind="chat", on_progress=lambda *step: seen.append(step), on_result=results.append)
    names = [check.name for check in checks_for("chat")]
    assert report.outcome == "pass"
    assert [result.name for result in report.results] == names
    assert seen == [(name, number, len(names)) for number, name in enumerate(names, 1)]
    assert tuple(results) == report.results
    assert report.facts.context_length == 256
    assert report.not_run == ()
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_what_a_refused_check_leaves_open_is_named(llama: Path) -> None:
    os.truncate(llama / "model.safetensors", 3000)
    report = verify_here(Subject(llama, "chat"))
    assert [result.name for result in report.refusals] == ["Weights"]
    assert report.not_run == ("Architecture", "Vocabulary", "Special tokens", "Round trip")
    assert "Chat template" in {result.name for result in report.results}


def test_a_refusal_names_file_and_tensor(llama: Path) -> None:
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    (refusal,) = verify_here(Subject(llama, "chat")).refusals
    assert (refusal.name, refusal.file) == ("Architecture", "weights")
    assert refusal.tensor.startswith("model.layers.2.")


def test_the_demo_embedding_model_passes(demo_embedding_path: Path) -> None:
    report = verify_here(Subject(demo_embedding_path, "embedding"))
    assert (report.outcome, report.facts.parameters, report.facts.context_length) == ("pass", 22_713_216, 256)


def test_a_changed_vocabulary_is_a_warning(llama: Path) -> None:
    before = verify_here(Subject(llama, "chat")).facts.vocabulary_digest
    assert verify_here(Subject(llama, "chat", earlier=before)).outcome == "pass"
    tokens = json.loads((llama / "tokenizer.json").read_text())
    vocabulary = tokens["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (llama / "tokenizer.json").write_text(json.dumps(tokens))
    report = verify_here(Subject(llama, "chat", earlier=before))
    assert report.outcome == "warn"
    assert "the vocabulary is not that of the version before" in warnings(report)


def test_an_end_token_that_ends_nothing_is_a_warning(llama: Path) -> None:
    (llama / "generation_config.json").write_text('{"eos_token_id": 0}')
    assert "the end token '<|im_end|>' has the id 2, which is not an end id" in warnings(
        verify_here(Subject(llama, "chat")))


def test_a_model_without_a_template_is_taken_with_a_warning(llama: Path) -> None:
    (llama / "chat_template.jinja").unlink()
    report = verify_here(Subject(llama, "chat"))
    assert report.outcome == "warn"
    assert "conversations can't be put to it" in warnings(report)


def test_a_template_that_takes_no_system_message_is_a_warning(llama: Path) -> None:
    (llama / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
        "{{ '<|unknown|>' + m.content }}{% endfor %}")
    found = warnings(verify_here(Subject(llama, "chat")))
    assert "takes no system message: no system here" in found
    assert "writes '<|unknown|>', which is not one token" in found


def test_an_architecture_that_transformers_runs_is_taken(llama: Path) -> None:
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"model_type": "stablelm"}))
    report = verify_here(Subject(llama, "chat"))
    assert not report.refusals
    assert report.facts.context_length == 256


def test_a_gguf_file_passes(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    assert verify_here(Subject(tmp_path, "chat")).outcome == "pass"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A LoRA of rank 4 for one matrix of the tiny model, as peft writes it."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "base_model_name_or_path": "x/y"}))
    save_lora(folder, (4, 64), (64, 4))
    return folder


def save_lora(folder: Path, down: tuple[int, ...], up: tuple[int, ...], module: str = "self_attn.q_proj") -> None:
    name = f"base_model.model.model.layers.0.{module}.lora_"
    save_file({f"{name}A.weight": np.zeros(down, np.float32), f"{name}B.weight": np.zeros(up, np.float32)},
              folder / "adapter_model.safetensors")


def test_an_adapter_fits_its_base(adapter: Path, good: Path) -> None:
    report = verify_here(Subject(adapter, "adapter", base=good))
    assert (report.outcome, report.facts.parameters) == ("pass", 2 * 4 * 64)
    assert verify_here(Subject(adapter, "adapter")).outcome == "warn"


def test_an_adapter_with_another_vocabulary_is_a_warning(adapter: Path, good: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(adapter / "tokenizer.json"))
    assert verify_here(Subject(adapter, "adapter", base=good)).outcome == "pass"
    tokenizer.add_tokens(["a new token"])
    tokenizer.save(str(adapter / "tokenizer.json"))
    assert "the vocabulary is not the base model's (264 tokens, the base has 263)" in warnings(
        verify_here(Subject(adapter, "adapter", base=good)))


@pytest.mark.parametrize(("down", "up", "module", "words"), [
    ((4, 32), (64, 4), "self_attn.q_proj", r"as \[64, 32\], and the base model's tensor is \[64, 64\]"),
    ((4, 64), (64, 4), "self_attn.ghost", "which the base model doesn't have"),
    ((8, 64), (64, 8), "self_attn.q_proj", "which are not of rank 4"),
])
def test_an_adapter_that_does_not_fit_is_refused(
    down: tuple[int, ...], up: tuple[int, ...], module: str, words: str, adapter: Path, good: Path
) -> None:
    save_lora(adapter, down, up, module)
    (refusal,) = verify_here(Subject(adapter, "adapter", base=good)).refusals
    assert re.search(words, refusal.message)


@pytest.mark.parametrize("change", [{"peft_type": "IA3"}, {"r": 0}, {"r": "4"}, {"lora_alpha": -1}, {"use_dora": True}])
def test_an_adapter_of_another_kind_is_refused(change: dict[str, object], adapter: Path) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    (refusal,) = verify_here(Subject(adapter, "adapter")).refusals
    assert refusal.message.startswith("adapter_config.json: ")


def test_a_check_that_takes_too_long_is_ended_and_refused(good: Path) -> None:
    report = run_checks(good, kind="chat", limits=Limits(check_seconds=0.0005))
    assert report.refusals[0].message.endswith("takes too long and was ended")


def test_a_verification_has_a_limit_of_time(good: Path) -> None:
    report = run_checks(good, kind="chat", limits=Limits(seconds=0))
    assert "takes longer than 0 seconds in all" in report.refusals[0].message


def test_a_check_that_needs_too_much_memory_is_refused(llama: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"token {number}" for number in range(50_000)])
    tokenizer.save(str(llama / "tokenizer.json"))
    report = run_checks(llama, kind="chat", limits=Limits(memory_bytes=48 * 2**20))
    assert report.refusals
    assert all("memory" in refusal.message for refusal in report.refusals)


def test_a_verification_can_be_stopped(good: Path) -> None:
    with pytest.raises(ChecksStopped):
        run_checks(good, kind="chat", should_stop=lambda: True)
    assert not [child for child in psutil.Process().children() if "registry.checks" in child.cmdline()]


def test_the_child_ends_with_its_parent(good: Path) -> None:
    command = [sys.executable, "-m", "registry.checks", str(good), "--kind", "chat", "--follow-stdin"]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.returncode in (0, 1)
    process.stdout.close()


def test_the_child_needs_no_django_and_no_torch() -> None:
    code = ("import sys, registry.checks.__main__\n"
            "print({'django', 'torch', 'transformers', 'numba', 'celery'} & set(sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
