"""`python -m inference.quantize`: complete checkpoints that transformers reads, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

from inference.artifacts.check import check_decoder_weights
from inference.artifacts.source import ModelSource
from inference.engine.runner import load_runner
from inference.evaluate import part_text
from inference.quantising.methods import METHODS
from inference.quantize import main
from inference.spec import EngineConfig
from inference.text.tokenizer import TextTokenizer
from tests.inference.models.steps import random_tokens, run_alone
from tests.tiny_models import VOCAB_SIZE, write_tiny_gguf, write_tiny_llama

STORED = {"smoothquant-int8": "compressed-tensors INT8 W8A8", "fp8": "compressed-tensors FP8",
          "awq-int4": "compressed-tensors INT4 (groups of 32)", "gptq-int4": "compressed-tensors INT4 (groups of 32)"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(part_text("prose")[:2000])
    return file


def run(source: Path, out: Path, method: str, text: Path, *more: str) -> int:
    return main([str(source), str(out), "--method", method, "--text", str(text), "--group-size", "32", *more])


def greedy_here(folder: Path, prompt: list[int], count: int) -> list[int]:
    config = EngineConfig(model=str(folder), mode="float32", max_model_len=64, max_num_seqs=1, threads=1,
                          max_num_batched_tokens=64)
    runner = load_runner(config, on_progress=lambda *_: None)
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(np.argmax(run_alone(runner, ids, chunk=64, table=[0, 1, 2, 3]).logits[-1])))
    return ids[len(prompt):]


@pytest.mark.parametrize("method", METHODS)
def test_the_result_loads_in_transformers_with_the_same_weights_and_tokens(
    method: str, text: Path, tmp_path: Path
) -> None:
    write_tiny_llama(tmp_path / "source")
    out = tmp_path / "out"
    assert run(tmp_path / "source", out, method, text, "--no-evaluation") == 0
    source = ModelSource.open(out)
    check_decoder_weights(source, source.decoder_spec())
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32,
                                                 quantization_config=CompressedTensorsConfig(dequantize=True))
    theirs = model.state_dict()
    for name, info in source.tensors.items():
        np.testing.assert_allclose(source.read_float32(name), theirs[name].numpy(), rtol=1e-6, atol=1e-9, err_msg=name)
        assert info.quantised == ("_proj." in name)
    assert {info.dtype for info in source.tensors.values() if info.quantised} == {STORED[method]}
    prompt = random_tokens(3, 12, low=0, high=VOCAB_SIZE)
    with torch.no_grad():
        wanted = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None)
    assert greedy_here(out, prompt, 12) == wanted[0, 12:].tolist()
    assert TextTokenizer.from_path(out).encode("hello", add_special_tokens=True) == TextTokenizer.from_path(
        tmp_path / "source").encode("hello", add_special_tokens=True)


def test_a_gguf_file_becomes_a_folder_and_the_figures_are_told(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", max_position_embeddings=8192, initializer_range=0.06,
                    metadata={"llama.context_length": 8192})
    assert run(tmp_path / "m.gguf", tmp_path / "out", "smoothquant-int8", text) == 0
    output = capsys.readouterr()
    assert "calibrating on" in output.err
    assert "layer 2 of 2" in output.err
    figures = json.loads(output.out)
    assert figures["layers"] == 14
    assert 0 < figures["here"]["mean_kl"] < 0.01
    assert 0 < figures["rounded_activations"]["mean_kl"] < 0.01
    assert abs(figures["here"]["perplexity"] / figures["here"]["reference_perplexity"] - 1) < 0.03
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja"}  # fmt: skip


def test_what_can_not_be_quantised_is_refused_by_name(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(*arguments: str) -> str:
        assert main([*arguments, "--method", "awq-int4"]) == 1
        return capsys.readouterr().err

    source = tmp_path / "source"
    assert "nowhere: there is no such file or folder" in refusal(str(tmp_path / "nowhere"), str(tmp_path / "out"))
    write_tiny_llama(source)
    assert "source: exists already" in refusal(str(source), str(source))
    assert "missing: is not a folder" in refusal(str(source), str(tmp_path / "missing" / "out"))
    assert "/dev/null: does not exist" in refusal(str(source), str(tmp_path / "out"), "--text", "/dev/null")
    (tmp_path / "short.txt").write_text("short")
    assert "the texts have 5 tokens; at least 512" in refusal(str(source), str(tmp_path / "out"), "--text",
                                                              str(tmp_path / "short.txt"))
    (tmp_path / "latin.txt").write_bytes(b"\xe9" * 600)
    assert "latin.txt: is not text in UTF-8" in refusal(str(source), str(tmp_path / "out"), "--text",
                                                        str(tmp_path / "latin.txt"))
    assert "has 96 inputs, which groups of 64 do not divide" in refusal(str(source), str(tmp_path / "out"), "--text",
                                                                        str(text))
    assert not (tmp_path / "out").exists()
    run(source, tmp_path / "once", "fp8", text, "--no-evaluation")
    assert "once: is quantised already (compressed-tensors FP8)" in refusal(str(tmp_path / "once"),
                                                                            str(tmp_path / "twice"))
