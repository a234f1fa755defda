"""CUDA graphs of decode steps for a few batch sizes: a step is copied into buffers that the graph reads, then replayed.

A step with fewer sequences than a graph has is filled up with ones that write to a block nobody reads.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from inference.layers.step import LayerCache, StepTensors
from inference.models.torch_decoder import TorchDecoder

SIZES = (1, 2, 4, 8, 16, 32, 64)


class StaticStep:
    """Buffers of one decode step of that many sequences.

    like: a step on the device, for the shapes of its rotary parts. width: blocks of the longest table. spare: a block
    that belongs to nobody. block_size: its tokens. max_context: most tokens of a sequence.
    """

    def __init__(
        self, like: StepTensors, *, size: int, width: int, spare: int, block_size: int, max_context: int
    ) -> None:
        device = like.token_ids.device
        whole = torch.zeros(size, dtype=torch.int64, device=device)
        counted = torch.arange(size + 1, dtype=torch.int32, device=device)
        self.size, self._spare, self._slot = size, spare, spare * block_size
        self.step = StepTensors(
            token_ids=whole.clone(), positions=whole.clone(), slots=whole + self._slot,
            sequence_of=torch.arange(size, device=device), query_starts=counted,
            context_lens=torch.ones(size, dtype=torch.int32, device=device),
            block_tables=torch.full((size, width), spare, dtype=torch.int32, device=device),
            rotary=tuple((part[0].new_zeros(size, part[0].shape[1]), part[1].new_zeros(size, part[1].shape[1]))
                         for part in like.rotary),
            max_query=1, max_context=max_context,
        )  # fmt: skip

    def load(self, step: StepTensors) -> None:
        """Copy a step of at most `size` decodes into the buffers, and fill the rest up."""
        count, blocks = len(step.token_ids), step.block_tables.shape[1]
        own = self.step
        for ours, theirs, filler in (
            (own.token_ids, step.token_ids, 0), (own.positions, step.positions, 0), (own.slots, step.slots, self._slot),
            (own.context_lens, step.context_lens, 1),
        ):  # fmt: skip
            ours[:count].copy_(theirs)
            ours[count:] = filler
        own.block_tables.fill_(self._spare)
        own.block_tables[:count, :blocks].copy_(step.block_tables)
        for ours_pair, theirs_pair in zip(own.rotary, step.rotary, strict=True):
            for ours, theirs in zip(ours_pair, theirs_pair, strict=True):
                ours[:count].copy_(theirs)


class DecodeGraphs:
    """The graphs of a decoder, captured when a size is first needed. Only for decoders whose steps never wait for the
    device to know a shape: no experts, no latent attention."""

    def __init__(
        self, decoder: TorchDecoder, caches: Sequence[LayerCache], *, spare: int, block_size: int, max_model_len: int
    ) -> None:
        self._decoder, self._caches = decoder, caches
        self._make: Callable[[StepTensors, int], StaticStep] = lambda like, size: StaticStep(
            like, size=size, width=-(-max_model_len // block_size), spare=spare, block_size=block_size,
            max_context=max_model_len,
        )  # fmt: skip
        self._captured: dict[int, tuple[StaticStep, torch.cuda.CUDAGraph, Tensor]] = {}

    def take(self, step: StepTensors) -> bool:
        """Return whether a step is all decodes, few enough for a graph."""
        return step.max_query == 1 and len(step.token_ids) <= SIZES[-1]

    def run(self, step: StepTensors) -> Tensor:
        """Return the logits [sequences, vocabulary] of a step that `take` allows."""
        size = next(size for size in SIZES if size >= len(step.token_ids))
        if size not in self._captured:
            self._captured[size] = self._capture(step, size)
        static, graph, logits = self._captured[size]
        static.load(step)
        graph.replay()
        return logits[: len(step.token_ids)]

    def _capture(self, step: StepTensors, size: int) -> tuple[StaticStep, torch.cuda.CUDAGraph, Tensor]:
        static = self._make(step, size)
        rows = torch.arange(size, device=step.token_ids.device)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # kernels choose their algorithms before the capture; all rows are filler
            for _ in range(2):
                self._decoder(static.step, self._caches, rows)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self._decoder(static.step, self._caches, rows)
        return static, graph, logits
