"""Speculation on the demo model: 50 prompts give the same tokens with and without it, greedy and sampled."""

import functools
import random
from pathlib import Path

import pytest

from inference.bench_speculation import CODE, TEXT
from inference.engine.loading import LoadedEngine, load_engine
from inference.protocol import Submit
from inference.spec import EngineConfig, Mode, SamplingParams
from inference.text.prompt import PromptBuilder
from tests.inference.engine.test_real_model import SUBJECTS, run

TASKS = (
    "Copy this text: {text}", "Correct the spelling of this text: {text}", "Write a poem about {subject}.",
    "Rename width to w in this code:\n\n{code}", "Count from 1 to 30, separated by commas, for {subject}.",
    "Say '{subject}' ten times.", "Explain {subject} in two sentences.",
)


@functools.lru_cache(maxsize=2)
def engine(path: Path, mode: Mode, speculation: bool) -> LoadedEngine:
    config = EngineConfig(model=str(path), mode=mode, max_model_len=1024, kv_cache_bytes=256 * 2**20,
                          speculation=speculation)
    return load_engine(config, on_progress=lambda phase, done, total: None)


def requests(path: Path, count: int, temperature: float) -> list[Submit]:
    builder, rng = PromptBuilder.from_path(path), random.Random(5)
    submits = []
    for number in range(count):
        length = rng.randint(60, len(TEXT))
        content = TASKS[number % len(TASKS)].format(text=TEXT[:length], subject=rng.choice(SUBJECTS), code=CODE)
        params = SamplingParams(max_tokens=32, temperature=temperature, seed=number)
        ids = builder.chat_ids([{"role": "user", "content": content}])
        submits.append(Submit(request_id=str(number), prompt_ids=ids, params=params))
    return submits


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("mode", "temperature"), [("int8", 0.0), ("int8", 0.7), ("float32", 0.0)])
def test_50_prompts_give_the_same_tokens_in_fewer_steps(demo_chat_path: Path, mode: Mode, temperature: float):
    submits = requests(demo_chat_path, 50, temperature)
    plain, guessing = engine(demo_chat_path, mode, False), engine(demo_chat_path, mode, True)
    steps = guessing.loop.stats().steps
    together = run(plain, submits)
    alone = {name: reply for submit in submits for name, reply in run(guessing, [submit]).items()}
    assert alone == together
    tokens = sum(len(reply.token_ids) for reply in alone.values())
    assert guessing.loop.stats().steps - steps < tokens * (0.7 if temperature == 0 else 0.9)
    assert run(guessing, submits) == together  # guesses are verified beside other requests' too
