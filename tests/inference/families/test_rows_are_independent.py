"""A row's logits in the torch decoder on the CPU, bit for bit: alone or among others, in any chunks and blocks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference.engine.runner import load_runner
from inference.spec import MODES, EngineConfig, Mode
from tests.inference.families.cases import CASES, write_tiny_decoder
from tests.inference.models.steps import Row, random_tokens, run_alone, step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

LENGTH = 60
TOKENS = random_tokens(11, LENGTH, low=3, high=250)
ODD = {"intermediate_size": 100, "hidden_size": 72}  # no multiples of a vector
NAMES = ["gemma2 past its window", "mistral past its window", "olmo2", "granite",
         "qwen3", "mixtral past its window", "qwen2_moe with a dense layer",
         "gpt_oss with YaRN past the original context, past its window"]


def _load(folder: Path, mode: Mode, threads: int = 2) -> Any:
    config = EngineConfig(model=str(folder), mode=mode, threads=threads, max_num_batched_tokens=256)
    return load_runner(config, on_progress=lambda phase, done, total: None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_neighbours_chunks_blocks_and_threads_do_not_change_a_bit(name: str, mode: Mode, tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **(CASES[name] | ODD))
    runner = _load(tmp_path, mode)
    alone = np.array(run_alone(runner, TOKENS, chunk=1, table=[9, 4, 7, 2]).logits)
    for chunk in (3, 16, LENGTH):
        row = run_alone(runner, TOKENS, chunk=chunk, table=[1, 2, 3, 5])
        np.testing.assert_array_equal(np.array(row.logits), alone)
    ours, rng = Row(table=[20, 41, 30, 43]), np.random.default_rng(3)
    rows = [Row(table=list(range(60 + 5 * i, 65 + 5 * i))) for i in range(7)]
    while ours.done < LENGTH:
        others = [(row, random_tokens(row.done, int(rng.integers(1, 4)), low=3, high=250)) for row in rows
                  if row.done < 70]
        mine = TOKENS[ours.done : ours.done + int(rng.integers(1, 9))]
        step(runner, [*others[:3], (ours, mine), *others[3:]])
    np.testing.assert_array_equal(np.array(ours.logits), alone)
    single = run_alone(_load(tmp_path, mode, threads=1), TOKENS, chunk=40, table=[0, 1, 2, 3])
    np.testing.assert_array_equal(np.array(single.logits), alone)
