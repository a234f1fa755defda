"""On the demo model: 50 sampled requests have the same logits, bit for bit, and the same tokens, however they are run.

Alone, in batches of 2, 8 and 32, in two chunk sizes, preempted, and resumed from every token. The runner remembers the
logits of every context over all of these, so a row is compared with itself under every other way to compute it.
"""

import random
from pathlib import Path

import pytest

from inference.engine.detokenizer import TokenText
from inference.engine.loop import EngineLoop
from inference.engine.runner import load_runner
from inference.engine.scheduler import Scheduler
from inference.protocol import Submit
from inference.spec import MODES, EngineConfig, Mode, SamplingParams
from inference.text.tokenizer import TextTokenizer
from tests.inference.engine.recording_runner import RecordingRunner

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

REQUESTS, NEW_TOKENS = 50, 8
Replies = dict[str, list[int]]


class Engine:
    """One loaded model; every run has a scheduler and a prefix cache of its own."""

    def __init__(self, path: Path, mode: Mode) -> None:
        config = EngineConfig(model=str(path), mode=mode, max_model_len=256, max_num_batched_tokens=64)
        tokenizer = TextTokenizer.from_path(path)
        self.runner = RecordingRunner(load_runner(config, on_progress=lambda phase, done, total: None))
        self._text = TokenText(tokenizer.backend, tokenizer.special_ids)

    def run(self, submits: list[Submit], *, at_once: int, budget: int, blocks: int | None = None) -> Replies:
        """Run requests, `at_once` of them at any time; prefill goes in chunks of `budget` less the decodes."""
        scheduler = Scheduler(num_blocks=blocks or self.runner.num_blocks, block_size=self.runner.block_size,
                              max_num_seqs=at_once, max_num_batched_tokens=budget)
        loop = EngineLoop(runner=self.runner, scheduler=scheduler, text=self._text, eos_token_ids=(),
                          max_model_len=256)
        replies = {submit.request_id: list(submit.output_ids) for submit in submits}
        for submit in submits:
            loop.submit(submit)
        while loop.has_work:
            for delta in loop.step().deltas:
                replies[delta.request_id] += delta.token_ids
                assert delta.finish_reason in (None, "length")
        scheduler.check_integrity()
        self.preemptions = scheduler.num_preemptions
        return replies


def _submits(count: int = REQUESTS, *, longest: int = 70, new_tokens: int = NEW_TOKENS) -> list[Submit]:
    """Prompts of 1 to `longest` tokens, all sampled."""
    rng = random.Random(5)
    return [Submit(request_id=str(number),
                   prompt_ids=[rng.randrange(1000, 40_000) for _ in range(rng.randint(1, longest))],
                   params=SamplingParams(max_tokens=new_tokens, temperature=0.9, top_p=0.95, seed=number))
            for number in range(count)]


@pytest.fixture(scope="module", params=MODES)
def engine(request: pytest.FixtureRequest, demo_chat_path: Path) -> Engine:
    return Engine(demo_chat_path, request.param)


@pytest.fixture(scope="module")
def alone(engine: Engine) -> Replies:
    replies = engine.run(_submits(), at_once=1, budget=64)
    assert len({tuple(reply) for reply in replies.values()}) == REQUESTS
    return replies


@pytest.mark.parametrize("budget", [64, 32])
@pytest.mark.parametrize("at_once", [2, 8, 32])
def test_batches_and_chunks_change_no_bit(engine: Engine, alone: Replies, at_once: int, budget: int) -> None:
    known = len(engine.runner.seen)
    assert engine.run(_submits(), at_once=at_once, budget=budget) == alone
    assert len(engine.runner.seen) == known  # the same contexts again, so every row was compared


def test_preemption_changes_no_bit(engine: Engine) -> None:
    submits = _submits(16, longest=8, new_tokens=60)  # replies outgrow the pool
    roomy = engine.run(submits, at_once=8, budget=64)
    known = len(engine.runner.seen)
    assert engine.run(submits, at_once=8, budget=24, blocks=12) == roomy
    assert engine.preemptions >= 5
    assert len(engine.runner.seen) == known


def test_resuming_from_any_token_changes_no_bit(engine: Engine, alone: Replies) -> None:
    known = len(engine.runner.seen)
    resumed = [Submit(request_id=f"{submit.request_id} from {k}", prompt_ids=submit.prompt_ids, params=submit.params,
                      output_ids=alone[submit.request_id][:k]) for submit in _submits() for k in range(1, NEW_TOKENS)]
    for name, reply in engine.run(resumed, at_once=32, budget=64).items():
        assert reply == alone[name.split()[0]]
    assert len(engine.runner.seen) == known
