"""Float32 greedy token ids of the real engine process against transformers' `generate` on the same weights."""

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inference.client import EngineProcess
from inference.protocol import EngineFrame, StepOutput, Submit
from inference.spec import EngineConfig, SamplingParams
from inference.text.prompt import PromptBuilder
from inference.text.tokenizer import TextTokenizer
from tests.inference.greedy_prompts import CONVERSATIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NEW_TOKENS = 64
NEAR_TIE = 1e-3  # logits; below it the two implementations' rounding may pick either token


@dataclass
class Collector:
    """Gathers each request's tokens and text from the engine's frames."""

    ids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    texts: dict[str, str] = field(default_factory=lambda: defaultdict(str))
    deltas: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[str, str] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def on_frame(self, frame: EngineFrame) -> None:
        if not isinstance(frame, StepOutput):
            return
        with self.changed:
            for delta in frame.deltas:
                self.ids[delta.request_id] += delta.token_ids
                self.texts[delta.request_id] += "".join(delta.texts) + delta.tail
                self.deltas[delta.request_id] += [*delta.texts, delta.tail]
                if delta.finish_reason:
                    self.reasons[delta.request_id] = delta.finish_reason
            self.changed.notify_all()

    def wait(self, *request_ids: str, timeout: float = 240) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: all(name in self.reasons for name in request_ids), timeout)


@pytest.fixture(scope="module")
def prompts(demo_chat_path: Path) -> list[list[int]]:
    builder = PromptBuilder.from_path(demo_chat_path)
    ids = [builder.chat_ids(messages) for messages in CONVERSATIONS]
    assert len(ids) == 24
    assert max(map(len, ids)) >= 1000
    return ids


@pytest.fixture(scope="module")
def reference(demo_chat_path: Path, prompts: list[list[int]]) -> list[list[int]]:
    """transformers' `generate` for each prompt; those of like length share a batch, padded on the left."""
    model = _transformers_model(demo_chat_path)
    short = [i for i, ids in enumerate(prompts) if len(ids) < 200]
    outputs: dict[int, list[int]] = {}
    for members in [short, *([i] for i in range(len(prompts)) if i not in short)]:
        outputs.update(zip(members, _generate(model, [prompts[i] for i in members]), strict=True))
    return [outputs[i] for i in range(len(prompts))]


def _generate(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    import torch

    longest = max(map(len, prompts))
    end = model.generation_config.eos_token_id
    ids = torch.tensor([[end] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    generated = model.generate(ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=end)
    rows = generated[:, longest:].tolist()
    return [row[:row.index(end) + 1] if end in row else row for row in rows]


def _transformers_model(gguf: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()


@pytest.fixture  # one process a test: nothing is in the prefix cache that another test left there
def engine(demo_chat_path: Path, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    collector = Collector()
    lost: list[str] = []
    process = EngineProcess.start(
        EngineConfig(model=str(demo_chat_path), mode="float32", max_num_seqs=24, max_num_batched_tokens=128),
        socket_dir=tmp_path_factory.mktemp("engine"), on_frame=collector.on_frame, on_lost=lost.append,
    )
    process.wait_ready(timeout=300, on_loading=lambda frame: None)
    yield process, collector
    process.stop()
    assert not lost or "stopp" in lost[0].lower()


def _submit(process: EngineProcess, name: str, ids: list[int]) -> None:
    process.submit(Submit(request_id=name, prompt_ids=ids, params=SamplingParams(max_tokens=NEW_TOKENS, temperature=0)))


def _assert_same_or_near_tie(gguf: Path, prompts: list[list[int]], expected: list[list[int]],
                             got: list[list[int]], how: str) -> None:
    """Equal ids, or the first difference is where the reference's top two logits are within NEAR_TIE."""
    import torch

    model = None
    ties = 0
    for prompt, want, have in zip(prompts, expected, got, strict=True):
        if want == have:
            continue
        first = next(i for i in range(NEW_TOKENS) if want[i:i + 1] != have[i:i + 1])
        model = model or _transformers_model(gguf)
        with torch.no_grad():
            logits = model(torch.tensor([prompt + want[:first]])).logits[0, -1]
        top = logits.topk(2).values
        other = have[first:first + 1]
        assert float(top[0] - top[1]) < NEAR_TIE, f"{how}: token {first} differs: {want[first]} against {other}"
        ties += 1
    print(f"\n{how}: {len(prompts) - ties} of {len(prompts)} replies equal, {ties} differ first at a near-tie")


def test_greedy_replies_equal_transformers_one_by_one(engine, demo_chat_path, prompts, reference):  # type: ignore[no-untyped-def]
    process, collector = engine
    for i, ids in enumerate(prompts):
        _submit(process, f"single-{i}", ids)
        collector.wait(f"single-{i}")
    got = [collector.ids[f"single-{i}"] for i in range(len(prompts))]
    _assert_same_or_near_tie(demo_chat_path, prompts, reference, got, "one by one")


def test_greedy_replies_equal_transformers_all_at_once(engine, demo_chat_path, prompts, reference):  # type: ignore[no-untyped-def]
    process, collector = engine
    names = [f"batch-{i}" for i in range(len(prompts))]
    for name, ids in zip(names, prompts, strict=True):
        _submit(process, name, ids)
    collector.wait(*names)
    _assert_same_or_near_tie(demo_chat_path, prompts, reference, [collector.ids[name] for name in names], "all at once")


STREAMED = ("今天天气很好，我们去公园散步。🦊 gehört zum Wald 🌲🌲🌲。他说：“你好，世界！”👩‍👩‍👧‍👦 and ❤️‍🔥!",
            "表情符号：😀😃😄😁😆 混合文字 テスト 한국어 🏳️‍🌈")


@pytest.mark.parametrize("text", STREAMED)
def test_streamed_deltas_of_chinese_and_emoji_are_the_decoded_whole(engine, demo_chat_path, text):  # type: ignore[no-untyped-def]
    """The model repeats a text that it was shown several times, then its deltas are compared with the decoded whole."""
    process, collector = engine
    tokenizer = TextTokenizer.from_path(demo_chat_path)
    shown = tokenizer.encode(text, add_special_tokens=False)
    name = f"stream-{text[:2]}"
    params = SamplingParams(max_tokens=len(shown) + 16, temperature=0, ignore_eos=True)
    process.submit(Submit(request_id=name, prompt_ids=shown * 4, params=params))
    collector.wait(name)
    whole = tokenizer.decode(collector.ids[name], skip_special_tokens=True)
    assert any(ord(character) > 0x2E80 for character in whole), whole  # it did write Chinese or emoji
    assert collector.texts[name] == whole
    if "\ufffd" not in whole:
        assert not any("\ufffd" in delta for delta in collector.deltas[name])
