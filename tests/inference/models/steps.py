"""Drives a runner by hand: sequences with block tables of their own choosing, in any mix."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from inference.engine.batch import Float32, StepBatch
from inference.engine.runner import CpuRunner


@dataclass
class Row:
    """One sequence: the blocks that hold it and how many of its tokens are in the cache."""

    table: list[int]
    done: int = 0
    logits: list[Float32] = field(default_factory=list)  # [vocabulary] for every token so far


def step(runner: CpuRunner, work: Sequence[tuple[Row, list[int]]]) -> None:
    """Feed each sequence its next tokens in one batch and keep the logits of all of them."""
    counts = [len(tokens) for _, tokens in work]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    positions = np.concatenate([np.arange(row.done, row.done + len(tokens)) for row, tokens in work])
    width = max(len(row.table) for row, _ in work)
    tables = np.full((len(work), width), -1, np.int32)
    for table, (row, _) in zip(tables, work, strict=True):
        table[: len(row.table)] = row.table
    blocks = np.repeat(np.arange(len(work)), counts)
    size = runner.block_size
    logits = runner.forward(
        StepBatch(
            token_ids=np.concatenate([tokens for _, tokens in work]).astype(np.int32),
            positions=positions.astype(np.int32),
            slots=(tables[blocks, positions // size] * size + positions % size).astype(np.int32),
            query_starts=starts,
            context_lens=np.array([row.done + len(tokens) for row, tokens in work], np.int32),
            block_tables=tables,
            logit_rows=np.arange(starts[-1], dtype=np.int32),
        )
    )
    for (row, tokens), start in zip(work, starts[:-1], strict=True):
        row.logits += list(logits[start : start + len(tokens)].copy())
        row.done += len(tokens)


def run_alone(runner: CpuRunner, tokens: list[int], *, chunk: int, table: list[int]) -> Row:
    """Feed one sequence in chunks of that size."""
    row = Row(table=table)
    for start in range(0, len(tokens), chunk):
        step(runner, [(row, tokens[start : start + chunk])])
    return row


def random_tokens(seed: int, count: int, *, low: int = 1000, high: int = 40_000) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(low, high, count)]
