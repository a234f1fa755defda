"""Attention for transformers' own models over our paged cache: one function that they call for every layer.

transformers looks attention up by name (AttentionInterface). Under ours the tokens of all sequences lie in one row
without padding; which sequence a token belongs to comes from the step that is set around the model's call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from inference.layers.paged_attention import paged_attention
from inference.layers.step import LayerCache, StepTensors

NAME = "parley_paged"


class UnsupportedAttention(Exception):
    """A model asks for attention that can't be computed over the paged cache."""


class PagedCaches:
    """Each attention layer's part of the pool, made when the layer first asks, in the shape of its keys and values."""

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.layers: dict[int, LayerCache] = {}

    def of(self, index: int, key: Tensor, value: Tensor) -> LayerCache:
        """Return the cache of a layer. key, value: [tokens, heads, dim]."""
        if index not in self.layers:
            shape = (self.num_blocks, self.block_size)
            self.layers[index] = LayerCache(key.new_empty(*shape, *key.shape[1:]),
                                            value.new_empty(*shape, *value.shape[1:]))
        return self.layers[index]

    @property
    def token_bytes(self) -> int:
        """Bytes that one token holds in all layers so far."""
        return sum(part[0, 0].nbytes for cache in self.layers.values() for part in cache)


_current: ContextVar[tuple[StepTensors, PagedCaches]] = ContextVar("step")


@contextmanager
def attending(step: StepTensors, caches: PagedCaches) -> Iterator[None]:
    """Let the models called inside attend to this step's sequences."""
    token = _current.set((step, caches))
    try:
        yield
    finally:
        _current.reset(token)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None,
    softcap: float | None = None, s_aux: Tensor | None = None, **others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend as transformers' functions do: query, key, value [1, heads, tokens, dim] → [1, tokens, heads, dim]."""
    step, caches = _current.get()
    if not getattr(module, "is_causal", True) or others.get("is_causal") is False:
        raise UnsupportedAttention("attention is not causal")
    if others.get("position_bias") is not None:
        raise UnsupportedAttention("attention has a bias by position")
    if attention_mask is not None and attention_mask.numel() != 1:
        raise UnsupportedAttention("the model makes masks of its own")
    if query.shape[0] != 1 or not query.shape[2] == key.shape[2] == len(step.token_ids):
        raise UnsupportedAttention("keys and values are not those of the step's tokens")
    if attention_mask is not None:
        sliding_window = int(attention_mask)
    query, key, value = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))
    cache = caches.of(module.layer_idx, key, value)
    cache.write(step.slots, key, value)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    out = paged_attention(query, step, cache, scale=scale, window=sliding_window, softcap=softcap, sinks=s_aux)
    return out[None], None


def _window_mask(*, device: Any = None, local_size: int | None = None, **_others: Any) -> Tensor | None:
    """Stand for a mask: nothing for full attention, and for a window its size, which `_attend` reads."""
    return None if local_size is None else torch.full((1, 1, 1, 1), float(local_size), device=device)


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _window_mask)
