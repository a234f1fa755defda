"""Puts an engine together from a model on disk: runner, scheduler, tokenizer and loop."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference.engine.batch import ModelRunner
from inference.engine.constraints import Constraints
from inference.engine.detokenizer import TokenText
from inference.engine.loop import EngineLoop
from inference.engine.scheduler import Scheduler
from inference.protocol import LoadPhase
from inference.spec import EngineConfig
from inference.text.tokenizer import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class LoadedEngine:
    """A loop that takes requests, and what it holds: memory in bytes, time in seconds.

    mode: the numeric recipe that runs. notes: what a person should know of how this model runs here.
    """

    loop: EngineLoop
    mode: str
    notes: tuple[str, ...]
    max_model_len: int
    weights_bytes: int
    kv_cache_bytes: int
    load_seconds: float


def scheduler_for(runner: ModelRunner, config: EngineConfig) -> Scheduler:
    """Return a scheduler with an empty cache of the runner's blocks."""
    return Scheduler(
        num_blocks=runner.num_blocks, block_size=runner.block_size, max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens, switch_length=runner.spec.switch_length,
        shares_prefixes=runner.shares_prefixes, on_release=runner.release,
    )  # fmt: skip


def load_engine(config: EngineConfig, *, on_progress: Callable[[LoadPhase, int, int], None]) -> LoadedEngine:
    """Load the model. Raises ArtifactError or SpecError with a readable reason."""
    from inference.engine.runner import load_runner  # numba: only a process that loads a model pays for it

    began = time.monotonic()
    tokenizer = TextTokenizer.from_path(Path(config.model))
    text = TokenText(tokenizer.backend, tokenizer.special_ids)
    runner = load_runner(config, on_progress=on_progress)
    constraints = Constraints(tokenizer.backend, vocabulary=text.vocab_size, end_ids=runner.spec.eos_token_ids)
    constraints.prepare()
    scheduler = scheduler_for(runner, config)
    loop = EngineLoop(
        runner=runner, scheduler=scheduler, text=text, constraints=constraints,
        eos_token_ids=runner.spec.eos_token_ids, max_model_len=runner.max_model_len,
        speculation=config.speculation and runner.shares_prefixes,  # else a wrong guess could not be taken back
    )
    return LoadedEngine(
        loop=loop, mode=runner.mode, notes=runner.notes, max_model_len=runner.max_model_len,
        weights_bytes=runner.weights_bytes, kv_cache_bytes=runner.kv_cache_bytes,
        load_seconds=time.monotonic() - began,
    )  # fmt: skip
