"""10,000 requests through one engine process leave its resident memory where it was after the first 500."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from inference.client import EngineProcess
from inference.protocol import EngineFrame, StepOutput, Submit
from inference.spec import EngineConfig, SamplingParams

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

REQUESTS = 10_000
BASELINE = 500
AT_ONCE = 32
GROWTH = 0.05


@dataclass
class Endings:
    """Counts requests that ended, by reason."""

    reasons: Counter[str] = field(default_factory=Counter)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def on_frame(self, frame: EngineFrame) -> None:
        if isinstance(frame, StepOutput):
            with self.changed:
                self.reasons.update(delta.finish_reason for delta in frame.deltas if delta.finish_reason)
                self.changed.notify_all()

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.reasons.total() >= count, timeout=120)


def _submit(number: int, rng: random.Random, shared: list[int]) -> Submit:
    """1 to 40 prompt tokens, 1 to 6 new ones; every third begins like others, every second is sampled."""
    own = [rng.randrange(1000, 40_000) for _ in range(rng.randint(1, 40))]
    sampling = {"temperature": 0.9, "top_p": 0.9} if number % 2 else {"temperature": 0.0}
    params = SamplingParams(max_tokens=rng.randint(1, 6), seed=number, stop=("\n\n",), **sampling)
    return Submit(request_id=str(number), prompt_ids=(shared if number % 3 == 0 else []) + own, params=params)


def test_resident_memory_stays_within_5_percent(demo_chat_path: Path, tmp_path: Path) -> None:
    endings, rng = Endings(), random.Random(7)
    shared = [rng.randrange(1000, 40_000) for _ in range(32)]
    process = EngineProcess.start(
        # A pool that the first 500 requests fill: its memory is taken block by block, and is no leak.
        EngineConfig(model=str(demo_chat_path), max_model_len=512, kv_cache_bytes=128 * 2**20),
        socket_dir=tmp_path, on_frame=endings.on_frame, on_lost=lambda reason: None,
    )  # fmt: skip
    try:
        process.wait_ready(timeout=300, on_loading=lambda frame: None)
        measured = psutil.Process(process.pid)
        resident: dict[int, int] = {}
        for number in range(REQUESTS):
            endings.wait(number - AT_ONCE + 1)
            process.submit(_submit(number, rng, shared))
            if number % 10 == 9:  # a client that leaves early
                process.cancel(str(number))
            if (number + 1) % BASELINE == 0:
                endings.wait(number + 1)
                resident[number + 1] = measured.memory_info().rss
        stats = process.stats()
    finally:
        process.stop()
    print({count: f"{size / 2**20:.1f} MiB" for count, size in resident.items()}, dict(endings.reasons))
    assert endings.reasons.total() == REQUESTS
    assert endings.reasons["failed"] == 0
    assert (stats.running, stats.waiting, stats.held_blocks) == (0, 0, 0)
    assert resident[REQUESTS] <= (1 + GROWTH) * resident[BASELINE]
