"""Runs models without a native family through transformers' own code: slower, on the CPU in float32, still batched."""

from pathlib import Path

import numpy as np
import torch

from inference.artifacts.fallback import FallbackSpec
from inference.engine.batch import Float32, LoadedAdapter, StepBatch
from inference.engine.torch_runner import check_batch, single_threaded, step_tensors
from inference.layers.kv_pool import blocks_that_fit
from inference.models.fallback import CachedModel, PagedModel, check_continues, load_model, pages_of
from inference.models.fallback_attention import PagedCaches
from inference.spec import EngineConfig, SpecError

CPU = torch.device("cpu")


class FallbackRunner:
    """A model of transformers with the paged pool, or with a cache for each request. One thread calls it.

    shares_prefixes: whether requests may take over each other's blocks, which only the paged pool allows.
    See TorchRunner for the rest. A row's last bits may depend on its batchmates here.
    """

    mode = "float32"
    expert_counts = None
    drawer = None

    def __init__(
        self, model: PagedModel | CachedModel, spec: FallbackSpec, *, num_blocks: int, block_size: int,
        max_model_len: int, threads: int,
    ) -> None:  # fmt: skip
        self.spec, self.max_model_len, self.vocab_size = spec, max_model_len, spec.vocab_size
        self.num_blocks, self.block_size = num_blocks, block_size
        self.weights_bytes = sum(parameter.nbytes for parameter in model.model.parameters())
        paged = isinstance(model, PagedModel)
        self.kv_cache_bytes = model.caches.token_bytes * num_blocks * block_size if isinstance(model, PagedModel) else 0
        self.shares_prefixes = paged
        self.notes = (f"{spec.family} runs through transformers' own code"
                      + ("" if paged else ", with a cache for each request, one after the other"),)
        self._model, self._threads = model, threads

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> Float32:
        """Run one step; see ModelRunner. Raises ValueError when an index of the batch is out of range."""
        check_batch(batch, vocab_size=self.vocab_size, positions=self.max_model_len, num_blocks=self.num_blocks,
                    block_size=self.block_size)
        with single_threaded(self._threads):
            if isinstance(self._model, CachedModel):
                logits = self._model(batch)
            else:
                logits = self._model(step_tensors(batch, CPU), torch.from_numpy(batch.logit_rows.astype(np.int64)))
            result: Float32 = logits.float().numpy()
            return result

    def release(self, first_block: int) -> None:
        """A request gave its blocks back; this was the first."""
        if isinstance(self._model, CachedModel):
            self._model.release(first_block)

    def add_adapter(self, folder: Path) -> LoadedAdapter:
        """Refuse: only native families take adapters."""
        raise SpecError("adapter", f"{self.spec.family} runs through transformers' own code, which takes no adapters")

    def drop_adapter(self, number: int) -> None:
        """There are none."""


def load_fallback_runner(
    folder: Path, spec: FallbackSpec, config: EngineConfig, *, max_model_len: int, threads: int
) -> FallbackRunner:
    """Return a runner of the model in a folder. Raises ArtifactError or SpecError when it can't be served."""
    if config.device != "cpu" or config.max_adapters:
        raise SpecError("device" if config.device != "cpu" else "max_adapters",
                        f"{spec.family!r} has no native family: it runs on the CPU, without adapters")
    model = load_model(folder)
    with single_threaded(threads):
        pages = pages_of(model)
    token_bytes = pages.token_bytes if pages else _usual_token_bytes(model)
    num_blocks = blocks_that_fit(config, token_bytes * config.block_size, max_model_len)
    runs: PagedModel | CachedModel
    if pages is None:
        runs = CachedModel(model)
        with single_threaded(threads):
            check_continues(runs)
    else:
        caches = PagedCaches(num_blocks=num_blocks, block_size=config.block_size)
        for index, cache in pages.layers.items():
            caches.of(index, cache.keys[0], cache.values[0])
        runs = PagedModel(model, caches)
    return FallbackRunner(runs, spec, num_blocks=num_blocks, block_size=config.block_size, max_model_len=max_model_len,
                          threads=threads)


def _usual_token_bytes(model: torch.nn.Module) -> int:
    """Return what a token would take in float32 if every layer kept keys and values of the hidden size: no less."""
    config = model.config.get_text_config(decoder=True)  # type: ignore[operator, union-attr]
    return int(2 * 4 * config.num_hidden_layers * config.hidden_size)
