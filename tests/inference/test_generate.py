"""The command line: what it prints where, and one plain sentence for what it can't do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inference import generate
from inference.text.prompt import PromptBuilder
from inference.text.tokenizer import TextTokenizer


def command(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "inference.generate", *map(str, arguments)], capture_output=True,
                          text=True, timeout=110)


@pytest.mark.slow
def test_a_chat_reply_streams_and_ends_with_one_line_of_json(demo_chat_path: Path):
    question = "What is the capital of France?"
    done = command(demo_chat_path, "--prompt", question, "--dtype", "float32", "--temperature", 0, "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    reply = json.loads(line)
    prompt_ids = PromptBuilder.from_path(demo_chat_path).chat_ids([{"role": "user", "content": question}])
    tokenizer = TextTokenizer.from_path(demo_chat_path)
    assert set(reply) == {"prompt_ids", "output_ids", "text", "finish_reason", "seed", "timings"}
    assert reply["prompt_ids"] == prompt_ids
    assert "Paris" in reply["text"]
    assert reply["text"] == tokenizer.decode(reply["output_ids"])
    assert reply["output_ids"][-1] == tokenizer.token_id("<|im_end|>")
    assert reply["finish_reason"] == "stop"
    assert reply["timings"]["output_tokens"] == len(reply["output_ids"])
    assert reply["text"] in done.stderr


@pytest.mark.slow
def test_raw_text_and_ids_take_no_template_and_ignore_eos_goes_on(demo_chat_path: Path,
                                                                   capsys: pytest.CaptureFixture[str]):
    def reply(*arguments: str) -> dict:
        common = ["--max-tokens", "12", "--ignore-eos", "--temperature", "0.8", "--seed", "7", "--json"]
        assert generate.main([str(demo_chat_path), *arguments, *common]) == 0
        return json.loads(capsys.readouterr().out)

    ids = TextTokenizer.from_path(demo_chat_path).encode("Once upon a time", add_special_tokens=True)
    raw = reply("--prompt", "Once upon a time", "--raw")
    assert raw["prompt_ids"] == ids
    assert len(raw["output_ids"]) == 12
    assert raw["finish_reason"] == "length"
    same = reply("--prompt-ids", ",".join(map(str, ids)))
    assert same["output_ids"] == raw["output_ids"]


@pytest.mark.slow
def test_a_stop_string_ends_the_reply_and_top_k_1_is_greedy(demo_chat_path: Path, capsys: pytest.CaptureFixture[str]):
    def reply(*arguments: str) -> dict:
        common = ["--prompt", "What is the capital of France?", "--max-tokens", "12", "--json"]
        assert generate.main([str(demo_chat_path), *common, *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    greedy = reply()
    assert reply("--temperature", "1", "--top-k", "1")["output_ids"] == greedy["output_ids"]
    assert reply("--temperature", "1", "--top-p", "0")["output_ids"] == greedy["output_ids"]
    stopped = reply("--stop", "never", "--stop", "Paris")
    assert (stopped["text"], stopped["finish_reason"]) == (greedy["text"].partition("Paris")[0], "stop")


WRONG = [
    (["--prompt-ids", "1,999999"], 1, "999999 is outside the vocabulary"),
    (["--prompt", "", "--raw"], 1, "the prompt is empty"),
    (["--prompt-ids", ",".join(["5"] * 9000)], 1, "9000 tokens"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "status", "said"), WRONG, ids=["id", "empty", "too long"])
def test_a_prompt_that_cannot_be_served_is_refused(arguments, status, said, demo_chat_path: Path,
                                                   capsys: pytest.CaptureFixture[str]):
    assert generate.main([str(demo_chat_path), *arguments]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


BAD_LINES = [
    ([], 2, "path"),
    (["{model}"], 2, "--prompt"),
    (["{model}", "--prompt", "x", "--prompt-ids", "1"], 2, "not allowed with"),
    (["{model}", "--prompt-ids", "1,x"], 2, "whole numbers"),
    (["{model}", "--prompt", "x", "--dtype", "fp4"], 2, "--dtype"),
    (["{model}", "--prompt", "x", "--temperature", "-1"], 1, "temperature: must be between"),
    (["{model}", "--prompt", "x", "--temperature", "nan"], 1, "temperature: must be between"),
    (["{model}", "--prompt", "x", "--top-p", "1.5"], 1, "top_p: must be between 0 and 1"),
    (["{model}", "--prompt", "x", "--stop", ""], 1, "stop: each stop string has 1 to"),
    (["{model}", "--prompt", "x", "--max-tokens", "0"], 1, "max_tokens: must be at least 1"),
    (["/nowhere/model.gguf", "--prompt", "x"], 1, "/nowhere/model.gguf: there is no such file"),
    (["{folder}", "--prompt", "x"], 1, "tokenizer.json: is missing"),
]


@pytest.mark.parametrize(("arguments", "status", "said"), BAD_LINES, ids=[" ".join(case[0][1:]) for case in BAD_LINES])
def test_a_wrong_command_line_is_one_plain_sentence(arguments, status, said, demo_chat_path: Path, tmp_path: Path):
    done = command(*(part.format(model=demo_chat_path, folder=tmp_path) for part in arguments))
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
