"""Runs any decoder spec in torch: the ModelRunner for what the CPU's fast path is not made for, and for CUDA."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import set_num_threads
from torch import Tensor

from inference.artifacts.adapter import AdapterSource
from inference.artifacts.checkpoint import Checkpoint
from inference.artifacts.source import ModelSource
from inference.decoder_spec import DecoderSpec
from inference.engine.batch import Draw, Float32, Int32, LoadedAdapter, StepBatch, TokenDrawer
from inference.engine.cuda_graphs import DecodeGraphs
from inference.engine.device_sampler import sample_rows
from inference.experts.parallel import ExpertParallel
from inference.layers.kv_pool import blocks_that_fit
from inference.layers.lora import Adapters, MakeLinear, rows_by_adapter
from inference.layers.moe import count_experts
from inference.layers.rope_tables import RopeTables
from inference.layers.step import LayerCache, StepTensors
from inference.layers.weights import OnBytes, WeightLoader
from inference.models.torch_decoder import TorchDecoder
from inference.spec import EngineConfig, SpecError

CPU = torch.device("cpu")
CUDA_BLOCK_SIZE = 256  # flash attention reads pages of whole multiples of it


@contextmanager
def single_threaded(threads: int) -> Iterator[None]:
    """Run torch's own kernels on one thread, so that how they split rows never depends on the batch; numba's on all."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_caches(spec: DecoderSpec, *, num_blocks: int, block_size: int, device: torch.device,
                dtype: torch.dtype) -> list[LayerCache]:
    """Return each layer's part of a pool of that many blocks; on the CPU memory is taken as blocks are written."""
    shape, (key_dim, value_dim) = (num_blocks, block_size, spec.cache_heads), spec.cache_dims
    return [LayerCache(torch.empty(*shape, key_dim, device=device, dtype=dtype),
                       torch.empty(*shape, value_dim, device=device, dtype=dtype)) for _ in range(spec.num_layers)]


class TorchRunner:
    """A decoder in torch with its paged pool. One thread calls it.

    spec, max_model_len: what was loaded and how far its context goes. weights_bytes, kv_cache_bytes: memory, in bytes.
    threads: of the CPU's kernels. mode: the numeric recipe that runs. notes: what a person should know of it.
    """

    shares_prefixes = True
    notes: tuple[str, ...] = ()

    def __init__(
        self, decoder: TorchDecoder, caches: list[LayerCache], tables: RopeTables, *, max_model_len: int,
        weights_bytes: int, threads: int, mode: str, num_blocks: int,
    ) -> None:  # fmt: skip
        keys = caches[0].keys
        self.mode = mode
        self.graphs: DecodeGraphs | None = None
        self.drawer: TokenDrawer | None = None
        self.adapters: Adapters | None = None
        self.make_linear: MakeLinear | None = None
        self.spec = decoder.spec
        self.max_model_len = max_model_len
        self.vocab_size = decoder.spec.vocab_size
        self.num_blocks, self.block_size = num_blocks, keys.shape[1]
        self.weights_bytes = weights_bytes + tables.nbytes
        self.kv_cache_bytes = sum(part.nbytes for cache in caches for part in cache)
        self._decoder, self._caches, self._tables = decoder, caches, tables
        self._device, self._threads = keys.device, threads
        self.expert_counts = count_experts([layer.mlp for layer in decoder.layers], keys.device)

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> Float32:
        """Run one step; see ModelRunner. Raises ValueError when an index of the batch is out of range."""
        self._begin(batch)
        with single_threaded(self._threads):
            result: Float32 = self._logits(batch).cpu().numpy()
            return result

    @torch.inference_mode()
    def draw(self, batch: StepBatch, draws: Sequence[Draw], *, vocab_size: int) -> npt.NDArray[np.int64]:
        """Run one step and draw on the device; see TokenDrawer."""
        self._begin(batch)
        with single_threaded(self._threads):
            ids: npt.NDArray[np.int64] = sample_rows(self._logits(batch)[:, :vocab_size], draws).cpu().numpy()
            return ids

    def _begin(self, batch: StepBatch) -> None:
        check_batch(batch, vocab_size=self.vocab_size, positions=self.max_model_len, num_blocks=self.num_blocks,
                    block_size=self.block_size)
        if self.expert_counts is not None:
            self.expert_counts.begin_step(len(batch.token_ids))

    @torch.inference_mode()
    def hidden_states(self, batch: StepBatch) -> Float32:
        """Run one step and return the state of each of its tokens behind the final norm, [tokens, hidden].

        Raises ValueError when an index of the batch is out of range.
        """
        check_batch(batch, vocab_size=self.vocab_size, positions=self.max_model_len, num_blocks=self.num_blocks,
                    block_size=self.block_size)
        with single_threaded(self._threads):
            step = step_tensors(batch, self._device, self._tables)
            result: Float32 = self._decoder.hidden(step, self._caches).float().cpu().numpy()
            return result

    def _logits(self, batch: StepBatch) -> Tensor:
        step = step_tensors(batch, self._device, self._tables)
        plain = not step.adapters and len(batch.logit_rows) == len(batch.token_ids)
        if self.graphs is not None and plain and self.graphs.take(step):
            return self.graphs.run(step)
        return self._decoder(step, self._caches, torch.from_numpy(_whole(batch.logit_rows)).to(self._device))

    def add_adapter(self, folder: Path) -> LoadedAdapter:
        """Load a LoRA adapter beside the model. Raises ArtifactError or SpecError with the reason when it can't be."""
        if self.adapters is None or self.make_linear is None:
            raise SpecError("max_adapters", "this model was loaded to take no adapters")
        source = AdapterSource(folder)
        return LoadedAdapter(self.adapters.add(source, self.spec, self.make_linear), source.digest)

    def drop_adapter(self, number: int) -> None:
        """Forget an adapter that no request uses any more."""
        if self.adapters is not None:
            self.adapters.drop(number)

    def release(self, first_block: int) -> None:
        """Nothing is kept for a request but its blocks."""


def _whole(values: Int32) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(values, np.int64)


def step_tensors(batch: StepBatch, device: torch.device, tables: RopeTables | None = None) -> StepTensors:
    """Return a batch as tensors on a device, with the rotary tables' part for each of its tokens."""
    counts = np.diff(batch.query_starts)
    sequence_of = np.repeat(np.arange(len(counts)), counts)
    totals = batch.context_lens if batch.total_lens is None else batch.total_lens

    def tensor(values: npt.NDArray[Any], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device, dtype)

    positions = tensor(batch.positions)
    return StepTensors(
        token_ids=tensor(batch.token_ids), positions=positions, slots=tensor(batch.slots),
        sequence_of=tensor(sequence_of), query_starts=tensor(batch.query_starts, torch.int32),
        context_lens=tensor(batch.context_lens, torch.int32),
        block_tables=tensor(np.maximum(batch.block_tables, 0), torch.int32),
        rotary=tables.of(positions, tensor(totals[sequence_of])) if tables else (),
        max_query=int(counts.max()), max_context=int(batch.context_lens.max()),
        adapters=rows_by_adapter(batch.adapters, tensor(sequence_of)) if batch.adapters else (),
    )  # fmt: skip


def check_batch(batch: StepBatch, *, vocab_size: int, positions: int, num_blocks: int, block_size: int) -> None:
    """Refuse a batch with an index out of range: kernels don't check bounds. Raises ValueError."""
    for name, values, end in (
        ("token_ids", batch.token_ids, vocab_size), ("positions", batch.positions, positions),
        ("slots", batch.slots, num_blocks * block_size), ("logit_rows", batch.logit_rows, len(batch.token_ids)),
    ):  # fmt: skip
        if len(values) and (values.min() < 0 or values.max() >= end):
            raise ValueError(f"{name} must be between 0 and {end - 1}")
    if batch.block_tables.max(initial=0) >= num_blocks:
        raise ValueError(f"block_tables must be below {num_blocks}")


def load_torch_runner(
    source: ModelSource, spec: DecoderSpec, config: EngineConfig, *, max_model_len: int, threads: int,
    on_bytes: OnBytes, parallel: ExpertParallel | None = None,
) -> TorchRunner:  # fmt: skip
    """Return a runner of the source's weights, whose experts are spread over the processes of parallel.

    Raises ArtifactError or SpecError when it can't be served.
    """
    place = _place(config)
    load = WeightLoader(Checkpoint(source, spec), device=place.device, dtype=place.dtype, mode=config.mode,
                        on_bytes=on_bytes)
    load.held_experts = None if parallel is None else parallel.held
    load.adapters = Adapters(most=config.max_adapters) if config.max_adapters else None
    decoder = TorchDecoder(spec, load)
    if parallel is not None:
        parallel.join(layer.mlp for layer in decoder.layers)
    token_bytes = spec.kv_bytes_per_token(place.dtype.itemsize)
    num_blocks = blocks_that_fit(config, token_bytes * place.block_size, max_model_len, block_size=place.block_size,
                                 free=place.free_bytes())
    on_cuda = place.device.type == "cuda"
    caches = make_caches(spec, num_blocks=num_blocks + on_cuda, block_size=place.block_size, device=place.device,
                         dtype=place.dtype)  # one more, which filled-up steps write to
    runner = TorchRunner(decoder, caches, RopeTables(spec, max_model_len, place.device), max_model_len=max_model_len,
                         weights_bytes=load.nbytes, threads=threads, mode=place.mode, num_blocks=num_blocks)
    runner.notes = place.notes(config)
    runner.adapters, runner.make_linear = load.adapters, load.added_linear
    if on_cuda:
        runner.drawer = runner
    if on_cuda and spec.moe is None and spec.mla is None:
        runner.graphs = DecodeGraphs(decoder, caches, spare=num_blocks, block_size=place.block_size,
                                     max_model_len=max_model_len)
    return runner


@dataclass(frozen=True)
class _Place:
    """Where a decoder runs, and as what: device, type of weights and cache, tokens of a block, name of the recipe."""

    device: torch.device
    dtype: torch.dtype
    block_size: int
    mode: str

    def free_bytes(self) -> int | None:
        """Return the device's free memory; None is the machine's."""
        return torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else None

    def notes(self, config: EngineConfig) -> tuple[str, ...]:
        return () if self.mode == config.mode else (f"weights run as {self.mode} on CUDA, not as {config.mode}",)


def _place(config: EngineConfig) -> _Place:
    if config.device == "cpu":
        return _Place(CPU, torch.float32, config.block_size, config.mode)
    if not torch.cuda.is_available():
        raise SpecError("device", "this machine has no CUDA device")
    size = max(config.block_size, CUDA_BLOCK_SIZE)
    if config.mode == "float32":
        return _Place(torch.device("cuda"), torch.float32, size, "float32")
    return _Place(torch.device("cuda"), torch.bfloat16, size, "bfloat16")
