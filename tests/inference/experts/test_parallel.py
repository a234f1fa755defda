"""A decoder whose experts are spread over two processes, before and after its experts move."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.inference.experts.parallel_worker import logits, runner_of
from tests.inference.families.cases import CASES, write_tiny_decoder

WORLD = 2


def _run_workers(folder: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    workers = [
        subprocess.Popen([sys.executable, "-m", "tests.inference.experts.parallel_worker", str(folder), str(rank),
                          str(WORLD)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(WORLD)
    ]  # fmt: skip
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=200)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)  # a cold start compiles the kernels
def test_two_processes_give_the_bits_of_one_before_and_after_experts_move(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **CASES["qwen2_moe with a dense layer"])
    alone = runner_of(tmp_path)
    wanted = [logits(alone, rank, [2, 0, 1]) for rank in range(WORLD)]  # first, so that kernels are compiled once
    _run_workers(tmp_path)
    for rank in range(WORLD):
        found = np.load(tmp_path / f"rank{rank}.npz")
        assert np.abs(wanted[rank]).max() > 1
        for placement in ("even", "planned", "even again"):
            np.testing.assert_array_equal(found[placement], wanted[rank])
        assert "can't replace one of (2, 2, 4)" in str(found["refusal"])
        assert int(found["weights_bytes"]) < alone.weights_bytes
