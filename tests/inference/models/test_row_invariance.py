"""A row's logits, bit for bit: alone or among others, in any chunks, blocks and threads, prefilled or decoded."""

from pathlib import Path

import numpy as np
import pytest

from inference.engine.batch import Float32
from inference.engine.runner import CpuRunner, load_runner
from inference.spec import MODES, EngineConfig
from tests.inference.models.steps import Row, random_tokens, run_alone, step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

LENGTH = 75
TOKENS = random_tokens(11, LENGTH)


def _load(path: Path, mode: str, threads: int = 2) -> CpuRunner:
    config = EngineConfig(model=str(path), mode=mode, max_model_len=512, threads=threads, max_num_batched_tokens=2560)  # type: ignore[arg-type]
    return load_runner(config, on_progress=lambda phase, done, total: None)


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture(scope="module")
def runner(demo_chat_path: Path, mode: str) -> CpuRunner:
    return _load(demo_chat_path, mode)


@pytest.fixture(scope="module")
def alone(runner: CpuRunner) -> Float32:
    """Logits [tokens, vocabulary] of the sequence run alone, one token at a time, as in decoding."""
    return np.array(run_alone(runner, TOKENS, chunk=1, table=[9, 4, 7, 2, 30]).logits)


@pytest.mark.parametrize("chunk", [2, 3, 16, 31, 64, LENGTH])
def test_prefill_in_any_chunk_gives_the_bits_of_decoding(runner: CpuRunner, alone: Float32, chunk: int) -> None:
    row = run_alone(runner, TOKENS, chunk=chunk, table=[1, 2, 3, 4, 5])
    np.testing.assert_array_equal(np.array(row.logits), alone)


@pytest.mark.parametrize("others", [1, 7, 31])
def test_neighbours_of_all_kinds_do_not_change_a_bit(runner: CpuRunner, alone: Float32, others: int) -> None:
    ours = Row(table=[50, 41, 60, 43, 70])
    rows = [Row(table=list(range(100 + 8 * i, 108 + 8 * i))) for i in range(others)]
    rng = np.random.default_rng(others)
    while ours.done < LENGTH:
        work = [(row, random_tokens(row.done, int(rng.integers(1, 4)))) for row in rows if row.done < 100]
        mine = TOKENS[ours.done : ours.done + int(rng.integers(1, 9))]
        step(runner, [*work[: others // 2], (ours, mine), *work[others // 2 :]])
    np.testing.assert_array_equal(np.array(ours.logits), alone)


def test_one_thread_gives_the_bits_of_two(demo_chat_path: Path, mode: str, alone: Float32) -> None:
    single = _load(demo_chat_path, mode, threads=1)
    np.testing.assert_array_equal(np.array(run_alone(single, TOKENS, chunk=40, table=[0, 1, 2, 3, 4]).logits), alone)


def test_blocks_that_held_something_that_is_not_a_number_do_not_change_a_bit(
    runner: CpuRunner, alone: Float32
) -> None:
    runner._pool.keys[[11, 12, 13, 14, 15]] = np.nan
    runner._pool.values[[11, 12, 13, 14, 15]] = np.nan
    row = run_alone(runner, TOKENS, chunk=20, table=[11, 12, 13, 14, 15])
    np.testing.assert_array_equal(np.array(row.logits), alone)
