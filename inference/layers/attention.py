"""The decoder's usual attention, and rotation; inference.layers.step has the interface of every attention module.

A module is made as `Attention(spec, index, load)` and called as `attention(x, step, cache)`: it projects its layer's
input, puts what it caches into the pool and returns what attention adds to the residual stream.
"""

import torch
from torch import Tensor

from inference.decoder_spec import DecoderSpec
from inference.layers.norm import Norm
from inference.layers.paged_attention import paged_attention
from inference.layers.step import LayerCache, StepTensors
from inference.layers.weights import WeightLoader


def rotate(x: Tensor, cosine: Tensor, sine: Tensor, *, interleaved: bool = False) -> Tensor:
    """Return x [tokens, heads, dim] with its first elements rotated by cosine and sine [tokens, rotated / 2].

    interleaved: pairs are elements (2i, 2i + 1) instead of (i, i + rotated / 2); the result keeps the order of x.
    """
    rotated = 2 * cosine.shape[-1]
    cosine, sine = cosine[:, None], sine[:, None]
    turned, kept = x[..., :rotated], x[..., rotated:]
    if interleaved:
        low, high = turned[..., 0::2], turned[..., 1::2]
    else:
        low, high = turned.chunk(2, dim=-1)
    low, high = low * cosine - high * sine, high * cosine + low * sine
    turned = torch.stack((low, high), dim=-1).flatten(-2) if interleaved else torch.cat((low, high), dim=-1)
    turned = turned.to(x.dtype)
    return torch.cat((turned, kept), dim=-1) if kept.shape[-1] else turned


def by_head(x: Tensor, heads: int) -> Tensor:
    """Return x [tokens, heads * dim] as [tokens, heads, dim]."""
    return x.reshape(len(x), heads, -1)


class Attention:
    """Multi-head attention with grouped keys: qk-norms, rope, window, soft-cap and sinks as the spec says."""

    def __init__(self, spec: DecoderSpec, index: int, load: WeightLoader) -> None:
        start = f"layers.{index}"
        self.layer = spec.layer(index)
        self._heads, self._kv_heads, self._dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self._qkv = load.linear(f"{start}.q", f"{start}.k", f"{start}.v")
        self._output = load.linear(f"{start}.o")
        self._norm_whole = spec.qk_norm == "whole"
        self._query_norm = self._key_norm = None
        if spec.qk_norm != "none":
            self._query_norm = Norm.load(spec, f"{start}.q_norm", load)
            self._key_norm = Norm.load(spec, f"{start}.k_norm", load)
        self._sinks = load.tensor(f"{start}.sinks") if spec.sinks else None
        self._scale, self._softcap = spec.score_factor, spec.attention_softcap
        self._interleaved = spec.rope.interleaved

    def __call__(self, x: Tensor, step: StepTensors, cache: LayerCache) -> Tensor:
        """Return what attention adds for x [tokens, hidden]; see AttentionModule."""
        widths = [self._heads * self._dim, self._kv_heads * self._dim, self._kv_heads * self._dim]
        query, key, value = torch.split(self._qkv(x, step), widths, dim=-1)
        query, key = self._normed(query, key)
        if self.layer.rope is not None:
            cosine, sine = step.rotary[self.layer.rope]
            query = rotate(query, cosine, sine, interleaved=self._interleaved)
            key = rotate(key, cosine, sine, interleaved=self._interleaved)
        cache.write(step.slots, key, by_head(value, self._kv_heads))
        attended = paged_attention(query, step, cache, scale=self._scale, window=self.layer.window,
                                   softcap=self._softcap, sinks=self._sinks)
        return self._output(attended.reshape(len(x), -1), step)

    def _normed(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys by heads, [tokens, heads, dim], normed where the spec wants it."""
        if self._query_norm and self._key_norm and self._norm_whole:
            query, key = self._query_norm(query), self._key_norm(key)
        query, key = by_head(query, self._heads), by_head(key, self._kv_heads)
        if self._query_norm and self._key_norm and not self._norm_whole:
            query, key = self._query_norm(query), self._key_norm(key)
        return query, key
