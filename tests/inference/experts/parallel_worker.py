"""One process of an expert-parallel decoder: python -m tests.inference.experts.parallel_worker FOLDER RANK WORLD."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from inference.artifacts.source import ModelSource
from inference.engine.torch_runner import TorchRunner, load_torch_runner
from inference.experts.parallel import ExpertParallel
from inference.experts.placement import Placement, PlacementError, even_placement, place_experts
from inference.spec import EngineConfig
from tests.inference.models.steps import random_tokens, run_alone

LAYERS = [0, 2]  # with experts
CHUNK = 16


def tokens_of(rank: int) -> list[int]:
    return random_tokens(rank, 40, low=3, high=250)


def runner_of(folder: Path, parallel: ExpertParallel | None = None) -> TorchRunner:
    """Return a runner of the model, whose experts are all here or spread."""
    source = ModelSource.open(folder)
    config = EngineConfig(model=str(folder), mode="float32", max_num_seqs=2, max_num_batched_tokens=CHUNK)
    return load_torch_runner(source, source.decoder_spec(), config, max_model_len=128, threads=1, parallel=parallel,
                             on_bytes=lambda done, total: None)


def logits(runner: TorchRunner, rank: int, table: list[int]) -> np.ndarray:
    return np.array(run_alone(runner, tokens_of(rank), chunk=CHUNK, table=table).logits)  # type: ignore[arg-type]


def main(folder: Path, rank: int, world: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=world)
    group = dist.group.WORLD
    assert group is not None
    even = even_placement(num_layers=2, num_experts=6, devices=world, spare_slots=2)
    parallel = ExpertParallel(even, LAYERS, group)
    runner = runner_of(folder, parallel)
    results = {"even": logits(runner, rank, [3, 1, 4])}
    assert runner.expert_counts is not None
    counts = torch.tensor(runner.expert_counts.load().counts)
    dist.all_reduce(counts)
    plan = place_experts(counts.numpy(), devices=world, spare_slots=2)
    assert plan.placement.slots.tolist() != even.slots.tolist()
    parallel.remap(plan.placement)
    results["planned"] = logits(runner, rank, [5, 2, 0])
    one_more = Placement(num_experts=6, slots=np.concatenate([even.slots, even.slots[:, :, :1]], axis=2))
    try:
        parallel.remap(one_more)
    except PlacementError as error:
        results["refusal"] = np.array(str(error))
    parallel.remap(even)
    results["even again"] = logits(runner, rank, [6, 7, 1])
    results["weights_bytes"] = np.array(runner.weights_bytes)
    np.savez(folder / f"rank{rank}.npz", **results)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
