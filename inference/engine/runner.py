"""Loads a model for the CPU and runs steps on it: the ModelRunner behind the engine's loop."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import config as numba_config

from inference.artifacts.errors import ArtifactError
from inference.artifacts.fallback import fallback_spec_from_config, runs_natively
from inference.artifacts.source import FolderSource, ModelSource
from inference.decoder_spec import DecoderSpec
from inference.engine.batch import Float32, Int32, LoadedAdapter, ModelRunner, ModelSpec, StepBatch
from inference.kernels.linear import PANEL
from inference.kernels.pinning import pin_team
from inference.kernels.pool import Pool
from inference.kernels.team import SYNC_SLOTS
from inference.kernels.vector import LANES
from inference.layers.kv_pool import count_blocks, make_pool, padded_values
from inference.layers.linear import padded
from inference.models.decoder import ROW_CHUNK, Buffers, Shape, Weights, Work, item_rows, run_step
from inference.models.loading import OnBytes, load_weights, weights_bytes
from inference.protocol import LoadPhase
from inference.spec import EngineConfig, Mode, SpecError

if TYPE_CHECKING:
    from inference.engine.torch_runner import TorchRunner

OnProgress = Callable[[LoadPhase, int, int], None]


def thread_count(config: EngineConfig) -> int:
    most = int(numba_config.NUMBA_NUM_THREADS)
    if config.threads > most:
        raise SpecError("threads", f"must be at most {most}, the processors that this process may use")
    return config.threads or most


def _max_model_len(config: EngineConfig, spec: ModelSpec) -> int:
    if config.max_model_len is not None and config.max_model_len > spec.max_position:
        raise SpecError("max_model_len", f"must be at most {spec.max_position:,}, the longest context of this model")
    return config.max_model_len or spec.max_position


def _make_buffers(spec: DecoderSpec, config: EngineConfig, *, max_model_len: int, threads: int) -> Buffers:
    """Return zeroed buffers; their memory is taken when a step first needs it."""
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    _, item = item_rows(spec.num_heads // spec.num_kv_heads)
    widest = max(padded(size) for size in (spec.hidden_size, queries, spec.intermediate_size))
    most_keys = -(-max_model_len // LANES) * LANES

    def rows(size: int) -> Float32:
        # 16 floats more than needed: rows a power of two apart would share few cache sets
        return np.zeros((config.max_num_batched_tokens, padded(size) + LANES), np.float32)

    return Buffers(
        stream=rows(spec.hidden_size), normed=rows(spec.hidden_size), qkv=rows(queries + 2 * keys),
        attended=rows(queries), activated=rows(spec.intermediate_size),
        logits=np.zeros((config.max_num_seqs, padded(spec.vocab_size)), np.float32),
        gate_up=np.zeros((threads, ROW_CHUNK, 2 * PANEL), np.float32),
        queries=np.zeros((threads, item, spec.head_dim), np.float32),
        scores=np.zeros((threads, item, most_keys + LANES), np.float32),
        sums=np.zeros((threads, item, padded_values(spec.head_dim)), np.float32),
        zeros=np.zeros(max(padded(size) for size in (spec.vocab_size, queries + 2 * keys, 2 * PANEL)), np.float32),
        sync=np.zeros(SYNC_SLOTS, np.int64),
        narrow=np.zeros((config.max_num_batched_tokens, widest + 2 * LANES), np.int16),
        narrow_scale=np.zeros(config.max_num_batched_tokens, np.float32),
    )  # fmt: skip


def _shape(spec: DecoderSpec) -> Shape:
    return Shape(
        layers=spec.num_layers, hidden=spec.hidden_size, inner=spec.intermediate_size, heads=spec.num_heads,
        kv_heads=spec.num_kv_heads, head_dim=spec.head_dim, epsilon=np.float32(spec.rms_norm_eps),
        softmax_factor=np.float32(spec.head_dim**-0.5),
    )  # fmt: skip


def _contiguous(values: Int32) -> Int32:
    return np.ascontiguousarray(values, np.int32)


class CpuRunner:
    """A decoder of llama's shape on the CPU with its KV pool; see ModelRunner. One thread calls it."""

    shares_prefixes = True
    expert_counts = drawer = None
    notes: tuple[str, ...] = ()

    def __init__(
        self, spec: DecoderSpec, weights: Weights, pool: Pool, buffers: Buffers, *, max_model_len: int, threads: int,
        mode: Mode,
    ) -> None:  # fmt: skip
        self.mode = mode
        self.spec = spec
        self.max_model_len = max_model_len
        self.vocab_size = spec.vocab_size
        self.num_blocks = pool.keys.shape[0]
        self.block_size = pool.keys.shape[3] * LANES
        self.weights_bytes = weights_bytes(weights)
        self.kv_cache_bytes = pool.keys.nbytes + pool.values.nbytes
        self._weights, self._pool, self._buffers = weights, pool, buffers
        self._threads = threads
        self._shape = _shape(spec)
        self._item_queries, _ = item_rows(spec.num_heads // spec.num_kv_heads)

    def forward(self, batch: StepBatch) -> Float32:
        """Run one step; see ModelRunner. The logits are a view that the next call overwrites.

        Raises ValueError when an index of the batch is out of range; then nothing was computed.
        """
        self._check(batch)
        wanted = len(batch.logit_rows)
        if wanted > len(self._buffers.logits):
            room = np.zeros((wanted, self._buffers.logits.shape[1]), np.float32)
            self._buffers = self._buffers._replace(logits=room)
        run_step(self._work(batch), self._shape, self._weights, self._pool, self._buffers, self._threads)
        return self._buffers.logits[:wanted, : self.vocab_size]

    def release(self, first_block: int) -> None:
        """Nothing is kept for a request but its blocks."""

    def add_adapter(self, folder: Path) -> LoadedAdapter:
        """Refuse: a model that may get adapters is loaded as a TorchRunner."""
        raise SpecError("max_adapters", "this model was loaded to take no adapters")

    def drop_adapter(self, number: int) -> None:
        """There are none."""

    def _work(self, batch: StepBatch) -> Work:
        starts, ends = batch.query_starts[:-1], batch.query_starts[1:]
        tiles = -(-(ends - starts) // self._item_queries)  # [sequences]
        sequence = np.repeat(np.arange(len(tiles), dtype=np.int32), tiles)
        number = np.arange(len(sequence), dtype=np.int32) - np.repeat(np.cumsum(tiles) - tiles, tiles)
        first = starts[sequence] + number * self._item_queries
        return Work(
            token_ids=_contiguous(batch.token_ids), positions=_contiguous(batch.positions),
            slots=_contiguous(batch.slots), block_tables=_contiguous(batch.block_tables),
            logit_rows=_contiguous(batch.logit_rows), item_sequence=sequence, item_first=_contiguous(first),
            item_count=_contiguous(np.minimum(ends[sequence] - first, self._item_queries)),
        )  # fmt: skip

    def _check(self, batch: StepBatch) -> None:
        """Kernels don't check bounds, so a wrong index must end here."""
        if not 1 <= len(batch.token_ids) <= len(self._buffers.stream):
            raise ValueError(f"a step has 1 to {len(self._buffers.stream)} tokens, not {len(batch.token_ids)}")
        for name, values, end in (
            ("token_ids", batch.token_ids, self.vocab_size),
            ("positions", batch.positions, self.max_model_len),
            ("slots", batch.slots, self.num_blocks * self.block_size),
            ("logit_rows", batch.logit_rows, len(batch.token_ids)),
        ):
            if len(values) and (values.min() < 0 or values.max() >= end):
                raise ValueError(f"{name} must be between 0 and {end - 1}")
        if batch.block_tables.max(initial=0) >= self.num_blocks:
            raise ValueError(f"block_tables must be below {self.num_blocks}")


def _warm_up(runner: ModelRunner) -> None:
    """Run one token, so that every kernel is compiled or read from the cache on disk."""
    zero = np.zeros(1, np.int32)
    runner.forward(
        StepBatch(
            token_ids=zero, positions=zero, slots=zero, query_starts=np.array([0, 1], np.int32),
            context_lens=np.ones(1, np.int32), block_tables=np.zeros((1, 1), np.int32), logit_rows=zero,
        )  # fmt: skip
    )


def load_runner(config: EngineConfig, *, on_progress: OnProgress) -> ModelRunner:
    """Load the model of a config and return it, ready to run at full speed.

    The llama shape runs on this module's fast path, other native families on TorchRunner, the rest by transformers.
    on_progress(phase, done, total): in bytes of the checkpoint, for `warming` in kernels.
    Raises ArtifactError or SpecError with the reason when the model or the limits can't be served.
    """
    on_progress("reading", 0, 1)
    source = ModelSource.open(Path(config.model))
    if not runs_natively(source.config):
        return _load_fallback(source, config, on_progress)
    spec = source.decoder_spec()
    threads, max_model_len = thread_count(config), _max_model_len(config, spec)
    on_progress("reading", 1, 1)
    report_lock = threading.Lock()

    def on_bytes(done: int, total: int) -> None:
        with report_lock:
            on_progress("packing", done, total)

    limits: dict[str, Any] = {"max_model_len": max_model_len, "threads": threads, "on_bytes": on_bytes}
    runner: CpuRunner | TorchRunner
    if spec.is_plain and config.device == "cpu" and not config.max_adapters:
        runner = _load_cpu_runner(source, spec, config, **limits)
    else:
        from inference.engine.torch_runner import load_torch_runner  # torch takes seconds to import

        runner = load_torch_runner(source, spec, config, **limits)
    runner.notes = (*runner.notes, *source.conversions(runner.mode))
    on_progress("warming", 0, 1)
    pin_team(threads)
    _warm_up(runner)
    if runner.expert_counts is not None:
        runner.expert_counts.forget()  # the warm-up
    on_progress("warming", 1, 1)
    return runner


def _load_fallback(source: ModelSource, config: EngineConfig, on_progress: OnProgress) -> ModelRunner:
    """Load a model that transformers runs. Raises ArtifactError or SpecError when it can't be served."""
    spec = fallback_spec_from_config(source.config, source.generation_config)
    if not isinstance(source, FolderSource):
        raise ArtifactError(Path(config.model).name, f"{spec.family!r} has no native family, and runs from safetensors "
                                                     "only")
    threads, max_model_len = thread_count(config), _max_model_len(config, spec)
    from inference.engine.fallback_runner import load_fallback_runner  # transformers takes seconds to import

    on_progress("packing", 0, 1)
    runner = load_fallback_runner(Path(config.model), spec, config, max_model_len=max_model_len, threads=threads)
    on_progress("packing", 1, 1)
    return runner


def _load_cpu_runner(
    source: ModelSource, spec: DecoderSpec, config: EngineConfig, *, max_model_len: int, threads: int,
    on_bytes: OnBytes,
) -> CpuRunner:  # fmt: skip
    weights = load_weights(
        source, spec, mode=config.mode, positions=max_model_len, threads=threads, on_bytes=on_bytes
    )
    num_blocks = count_blocks(config, spec, max_model_len)
    pool = make_pool(spec, num_blocks=num_blocks, block_size=config.block_size)
    buffers = _make_buffers(spec, config, max_model_len=max_model_len, threads=threads)
    return CpuRunner(spec, weights, pool, buffers, max_model_len=max_model_len, threads=threads, mode=config.mode)
