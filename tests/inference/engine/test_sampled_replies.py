"""50 seeded sampled requests on the demo model: the same tokens alone, in any batch, preempted and resumed."""

import functools
import random
from pathlib import Path

import pytest

from inference.protocol import Submit
from inference.spec import MODES, Mode, SamplingParams
from inference.text.prompt import PromptBuilder
from tests.inference.engine.context_model import Reply
from tests.inference.engine.test_real_model import SUBJECTS, engine, run

REQUESTS = 50
NEW_TOKENS = 28
EXTRAS = (
    {}, {"top_p": 0.9}, {"top_k": 40, "min_p": 0.02}, {"repetition_penalty": 1.3}, {"top_p": 0.95, "temperature": 1.4},
    {"presence_penalty": 0.8, "frequency_penalty": 0.5}, {"logit_bias": ((5, 4.0), (28, -100.0)), "min_tokens": 12},
    {"repetition_penalty": 1.1, "frequency_penalty": 0.3, "stop": (" the",), "min_tokens": 3},
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900), pytest.mark.parametrize("mode", MODES)]


@functools.cache
def submits(path: Path) -> tuple[Submit, ...]:
    """Prompts of about 30 to 110 tokens, sampled in many ways, a few of them long enough for several chunks."""
    builder, rng = PromptBuilder.from_path(path), random.Random(4)
    requests = []
    for number in range(REQUESTS):
        words = " ".join(rng.choice(("river", "and", "七", "42")) for _ in range(rng.choice((0, 3, 10, 80))))
        ids = builder.chat_ids([{"role": "user", "content": f"Tell me of {SUBJECTS[number % 8]}. {words}"}])
        sampling = {"temperature": 0.9, "ignore_eos": number % 3 == 0, **EXTRAS[number % len(EXTRAS)]}
        requests.append(Submit(request_id=str(number), prompt_ids=ids,
                               params=SamplingParams(max_tokens=NEW_TOKENS, seed=rng.getrandbits(63), **sampling)))
    return tuple(requests)


@functools.lru_cache(maxsize=2)
def alone(path: Path, mode: Mode) -> dict[str, Reply]:
    loaded = engine(path, mode)
    replies: dict[str, Reply] = {}
    for submit in submits(path):
        replies |= run(loaded, [submit])
    assert len({tuple(reply.token_ids) for reply in replies.values()}) == REQUESTS
    return replies


@pytest.mark.parametrize("size", [2, 8, 32])
def test_in_batches(demo_chat_path: Path, mode: Mode, size: int):
    requests, replies = submits(demo_chat_path), dict[str, Reply]()
    for first in range(0, REQUESTS, size):
        replies |= run(engine(demo_chat_path, mode), list(requests[first:first + size]))
    assert replies == alone(demo_chat_path, mode)


def test_under_another_chunk_size(demo_chat_path: Path, mode: Mode):
    """Prompts come in chunks of at most 24 tokens instead of 64."""
    replies = run(engine(demo_chat_path, mode, budget=24, max_num_seqs=24), list(submits(demo_chat_path)))
    assert replies == alone(demo_chat_path, mode)


def test_after_preemption(demo_chat_path: Path, mode: Mode):
    """And in one chunk, since requests that come together run out of blocks together."""
    right = alone(demo_chat_path, mode)
    tight = engine(demo_chat_path, mode, budget=256, max_num_seqs=24, kv_mb=48)
    assert run(tight, list(submits(demo_chat_path))) == right
    assert tight.loop.stats().preemptions >= 3


def test_resumed_from_any_token(demo_chat_path: Path, mode: Mode):
    right = alone(demo_chat_path, mode)
    resumed = [Submit(request_id=f"{submit.request_id} {k}", prompt_ids=submit.prompt_ids, params=submit.params,
                      output_ids=right[submit.request_id].token_ids[:k])
               for number, submit in enumerate(submits(demo_chat_path))
               for k in range(number % 4, len(right[submit.request_id].token_ids) + 1, 4)]
    assert {int(submit.request_id.split()[1]) for submit in resumed} == set(range(NEW_TOKENS + 1))
    for name, reply in run(engine(demo_chat_path, mode), resumed).items():
        number, k = name.split()
        assert reply.token_ids == right[number].token_ids
        assert reply.texts == right[number].texts[int(k):]
        assert reply.finish_reason == right[number].finish_reason
