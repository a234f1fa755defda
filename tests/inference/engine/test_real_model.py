"""The whole engine on the demo model: a reply depends on its request alone, in every mode, and can be resumed."""

import functools
import random
from pathlib import Path

import pytest

from inference.engine.loading import LoadedEngine, load_engine
from inference.protocol import Submit
from inference.spec import MODES, EngineConfig, Mode, SamplingParams
from inference.text.prompt import PromptBuilder
from tests.inference.engine.context_model import Reply

NEW_TOKENS = 24
SUBJECTS = ("the sea", "冬天的雪", "a fox 🦊", "def main():", "Zürich", "primes", "rain, wind and snow", "日本語")


@functools.lru_cache(maxsize=2)
def engine(path: Path, mode: Mode, budget: int = 64, max_num_seqs: int = 32, kv_mb: int = 256) -> LoadedEngine:
    config = EngineConfig(model=str(path), mode=mode, max_model_len=1024, max_num_seqs=max_num_seqs,
                          max_num_batched_tokens=budget, kv_cache_bytes=kv_mb * 2**20)
    return load_engine(config, on_progress=lambda phase, done, total: None)


def run(loaded: LoadedEngine, submits: list[Submit]) -> dict[str, Reply]:
    """All of them at once."""
    for submit in submits:
        loaded.loop.submit(submit)
    replies = {submit.request_id: Reply(token_ids=list(submit.output_ids), texts=[]) for submit in submits}
    while loaded.loop.has_work:
        for delta in loaded.loop.step().deltas:
            reply = replies[delta.request_id]
            reply.token_ids += delta.token_ids
            reply.texts += delta.texts
            reply.finish_reason = delta.finish_reason or reply.finish_reason
    loaded.loop.scheduler.check_integrity()
    stats = loaded.loop.stats()
    assert (stats.running, stats.waiting, stats.held_blocks) == (0, 0, 0)
    return replies


def requests(path: Path, count: int) -> list[Submit]:
    """Prompts of 10 to 400 tokens; every other one is sampled."""
    builder, rng = PromptBuilder.from_path(path), random.Random(0)
    submits = []
    for number in range(count):
        subject = SUBJECTS[number % len(SUBJECTS)]
        words = " ".join(rng.choice(("and", "the", "river", "七", "code", "42")) for _ in range(rng.randint(0, 300)))
        ids = builder.chat_ids([{"role": "user", "content": f"Write about {subject}. {words}"}])
        sampling = {"temperature": 0.0} if number % 2 else {"temperature": 0.9, "top_p": 0.95, "top_k": 200}
        submits.append(Submit(request_id=str(number), prompt_ids=ids,
                              params=SamplingParams(max_tokens=NEW_TOKENS, seed=number, **sampling)))
    return submits


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_32_requests_at_once_give_what_each_gives_alone(demo_chat_path: Path, mode: Mode):
    submits = requests(demo_chat_path, 32)
    together = run(engine(demo_chat_path, mode), submits)
    assert len({tuple(reply.token_ids) for reply in together.values()}) > 20
    for submit in submits[:12]:
        alone = run(engine(demo_chat_path, mode), [submit])[submit.request_id]
        assert alone == together[submit.request_id]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_reply_resumed_from_any_token_is_the_same(demo_chat_path: Path, mode: Mode):
    loaded = engine(demo_chat_path, mode)
    for submit in requests(demo_chat_path, 2):
        undisturbed = run(loaded, [submit])[submit.request_id]
        resumed = [Submit(request_id=f"from {k}", prompt_ids=submit.prompt_ids, params=submit.params,
                          output_ids=undisturbed.token_ids[:k]) for k in range(len(undisturbed.token_ids) + 1)]
        for k, reply in enumerate(run(loaded, resumed).values()):
            assert reply.token_ids == undisturbed.token_ids
            assert reply.texts == undisturbed.texts[k:]
            assert reply.finish_reason == undisturbed.finish_reason


@pytest.mark.slow
def test_preemption_and_small_chunks_change_nothing(demo_chat_path: Path):
    submits = [Submit(request_id=str(number), prompt_ids=submit.prompt_ids[:50 + number],
                      params=SamplingParams(max_tokens=90, seed=number, ignore_eos=True))
               for number, submit in enumerate(requests(demo_chat_path, 12))]
    roomy = run(engine(demo_chat_path, "float32"), submits)
    tight = engine(demo_chat_path, "float32", budget=16, max_num_seqs=12, kv_mb=46)
    assert run(tight, submits) == roomy
    assert tight.loop.stats().preemptions > 0
