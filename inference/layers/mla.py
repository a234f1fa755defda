"""Multi-head latent attention: the cache holds one latent and one rotated key a token, shared by all heads.

Two ways to the same result. Expanded: every head's keys and values are computed from the cached latents. Absorbed: the
projection that would expand keys is applied to the queries instead, and the one for values to what was attended, so
that attention runs over the latents themselves. Source: DeepSeek-V2 (2024), section 2.1 and appendix C.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from inference.decoder_spec import DecoderSpec, MlaSpec
from inference.kernels.grouped import multiply_groups
from inference.kernels.linear import Packed
from inference.kernels.packed import multiply_rows
from inference.layers.attention import rotate
from inference.layers.linear import fill, packed_bytes, packed_room, panels_for
from inference.layers.norm import Norm
from inference.layers.paged_attention import paged_attention
from inference.layers.step import LayerCache, StepTensors
from inference.layers.weights import WeightLoader

NORM_EPSILON = 1e-6  # of the latents' norms, in every published model; rms_norm_eps is of the others


def expands(rows: int, mla: MlaSpec) -> bool:
    """Whether expanding costs fewer multiplications than absorbing, for a sequence with so many new tokens.

    Expanding costs rank * (nope + value) a cached token and head, once. Absorbing makes each pair of new and cached
    token cost 2 * rank in place of nope + value. So prefill expands and decode absorbs; DeepSeek-V3's border is 171.
    """
    expanded = mla.nope_head_dim + mla.v_head_dim
    return rows * (2 * mla.kv_lora_rank - expanded) > mla.kv_lora_rank * expanded


class LatentAttention:
    """Latent attention of one layer; see AttentionModule."""

    def __init__(self, spec: DecoderSpec, index: int, load: WeightLoader) -> None:
        assert spec.mla is not None, "only a spec with latents is run by this module"
        start = f"layers.{index}"
        self.mla, self._heads, self._scale = spec.mla, spec.num_heads, spec.score_factor
        self._interleaved = spec.rope.interleaved
        self._query_a = self._query_norm = None
        if spec.mla.q_lora_rank is not None:
            self._query_a = load.linear(f"{start}.q_a")
            self._query_norm = Norm(load.tensor(f"{start}.q_a_norm.weight"), NORM_EPSILON)
        self._query = load.linear(f"{start}.q" if self._query_a is None else f"{start}.q_b")
        self._latent = load.linear(f"{start}.kv_a")
        self._latent_norm = Norm(load.tensor(f"{start}.kv_a_norm.weight"), NORM_EPSILON)
        self._up = load_up_projection(spec, index, load)
        self._output = load.linear(f"{start}.o")

    def __call__(self, x: Tensor, step: StepTensors, cache: LayerCache) -> Tensor:
        """Return what attention adds for x [tokens, hidden]; see AttentionModule."""
        query, query_rope = self._queries(x, step)
        cache.write(step.slots, self._keys(x, step))
        attended = self._attend(query, query_rope, step, cache)
        return self._output(attended.flatten(1), step)

    def _queries(self, x: Tensor, step: StepTensors) -> tuple[Tensor, Tensor]:
        """Return queries without and with rotation, [tokens, heads, nope dim] and [tokens, heads, rope dim]."""
        if self._query_a is not None and self._query_norm is not None:
            x = self._query_norm(self._query_a(x, step))
        query = self._query(x, step).reshape(len(x), self._heads, -1)
        nope, rope = torch.split(query, [self.mla.nope_head_dim, self.mla.rope_head_dim], dim=-1)
        return nope, self._rotate(rope, step)

    def _keys(self, x: Tensor, step: StepTensors) -> Tensor:
        """Return what is cached of each token, [tokens, 1, latent + rope dim]: the normed latent, the rotated key."""
        latent, rope = self._parts(self._latent(x, step))
        return torch.cat((self._latent_norm(latent)[:, None], self._rotate(rope[:, None], step)), dim=-1)

    def _parts(self, cached: Tensor) -> tuple[Tensor, Tensor]:
        """Split what a token caches, [..., latent + rope dim], into latent and rotated key."""
        latent, rope = torch.split(cached, [self.mla.kv_lora_rank, self.mla.rope_head_dim], dim=-1)
        return latent, rope

    def _rotate(self, x: Tensor, step: StepTensors) -> Tensor:
        cosine, sine = step.rotary[0]
        return rotate(x, cosine, sine, interleaved=self._interleaved)

    def _attend(self, query: Tensor, rope: Tensor, step: StepTensors, cache: LayerCache) -> Tensor:
        """Return what each head's queries attend to, [tokens, heads, value dim]."""
        if not expands(step.max_query, self.mla):
            return self._absorbed(query, rope, step, cache)
        bounds = list(pairwise(step.query_starts.tolist()))
        few = [index for index, (start, end) in enumerate(bounds) if not expands(end - start, self.mla)]
        out = query.new_empty(*query.shape[:2], self.mla.v_head_dim)
        if few:
            rows = torch.cat([torch.arange(*bounds[index], device=query.device) for index in few])
            out[rows] = self._absorbed(query[rows], rope[rows], part_of_step(step, few, rows), cache)
        for index, (start, end) in enumerate(bounds):
            if expands(end - start, self.mla):
                both = torch.cat((query[start:end], rope[start:end]), dim=-1)
                out[start:end] = self._expanded(both, step, index, start, end, cache)
        return out

    def _absorbed(self, query: Tensor, rope: Tensor, step: StepTensors, cache: LayerCache) -> Tensor:
        """Attend to the latents themselves: each head's query is brought to their space, its result back from it."""
        latent_query = torch.cat((self._up.absorb(query), rope), dim=-1)  # [tokens, heads, latent + rope dim]
        both = LayerCache(cache.keys, cache.keys)  # the rope part of what is attended is left out below
        attended = paged_attention(latent_query, step, both, scale=self._scale)
        return self._up.values(attended[..., : self.mla.kv_lora_rank])

    def _expanded(self, query: Tensor, step: StepTensors, index: int, start: int, end: int,
                  cache: LayerCache) -> Tensor:
        """Attend to the keys and values of each head, which are computed from one sequence's latents."""
        length = int(step.context_lens[index])
        cached = cache.keys[step.block_tables[index].long()].flatten(0, 2)[:length]  # [context, latent + rope dim]
        latent, rope = self._parts(cached.to(query.dtype))
        key, value = self._up.expand(latent)
        key = torch.cat((key, rope[:, None].expand(-1, self._heads, -1)), dim=-1)
        one_block = LayerCache(key.contiguous()[None], value.contiguous()[None])  # a pool of one block: the sequence
        rows = torch.arange(start, end, device=query.device)
        alone = replace(part_of_step(step, [index], rows), block_tables=step.block_tables.new_zeros(1, 1))
        return paged_attention(query, alone, one_block, scale=self._scale)


def part_of_step(step: StepTensors, sequences: Sequence[int], rows: Tensor) -> StepTensors:
    """Return what attention needs of the step for these sequences alone, whose tokens are rows."""
    chosen = torch.tensor(sequences, device=rows.device)
    counts = step.query_starts.diff()[chosen]
    starts = torch.cat((counts.new_zeros(1), counts.cumsum(0))).to(step.query_starts.dtype)
    return replace(
        step, token_ids=step.token_ids[rows], positions=step.positions[rows], slots=step.slots[rows],
        sequence_of=torch.repeat_interleave(torch.arange(len(sequences), device=rows.device), counts),
        query_starts=starts, context_lens=step.context_lens[chosen], block_tables=step.block_tables[chosen],
        rotary=tuple((cosine[rows], sine[rows]) for cosine, sine in step.rotary), max_query=int(counts.max()),
        max_context=int(step.context_lens[chosen].max()), adapters=(),
    )  # fmt: skip


class UpProjection(Protocol):
    """The projection from latents to every head's key and value, and the two halves of it that can be absorbed."""

    def expand(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of latents [tokens, latent]: [tokens, heads, nope dim], [tokens, heads, value dim]."""
        ...

    def absorb(self, query: Tensor) -> Tensor:
        """Bring queries into the latents' space: [tokens, heads, nope dim] to [tokens, heads, latent]."""
        ...

    def values(self, attended: Tensor) -> Tensor:
        """Return each head's value of attended latents: [tokens, heads, latent] to [tokens, heads, value dim]."""
        ...


class DenseUpProjection:
    """The projection in torch's own products. weight: [heads, nope + value dim, latent]."""

    def __init__(self, weight: Tensor, mla: MlaSpec) -> None:
        self._key, self._value = torch.split(weight, [mla.nope_head_dim, mla.v_head_dim], dim=1)

    def expand(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        key, value = (torch.einsum("tr,hdr->thd", latent, weight) for weight in (self._key, self._value))
        return key, value

    def absorb(self, query: Tensor) -> Tensor:
        return torch.einsum("thd,hdr->thr", query, self._key)

    def values(self, attended: Tensor) -> Tensor:
        return torch.einsum("thr,hdr->thd", attended, self._value)


class PackedUpProjection:
    """The projection through the numba kernels, a group for each head; always in float32, so that both ways agree.

    weight: [heads, nope + value dim, latent].
    """

    def __init__(self, weight: np.ndarray[tuple[int, int, int], np.dtype[np.float32]], mla: MlaSpec) -> None:
        key = weight[:, : mla.nope_head_dim]
        self._key, self._value = _pack(key), _pack(weight[:, mla.nope_head_dim :])
        self._query = _pack(np.ascontiguousarray(key.swapaxes(1, 2)))
        self._mla = mla
        self.nbytes = sum(packed_bytes(part) for part in (self._key, self._value, self._query))

    def expand(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        rows = latent.contiguous().numpy()
        key, value = (torch.from_numpy(multiply_rows(rows, _as_one(part))).reshape(len(rows), len(part.weights), -1)
                      for part in (self._key, self._value))
        return key[..., : self._mla.nope_head_dim], value[..., : self._mla.v_head_dim]

    def absorb(self, query: Tensor) -> Tensor:
        return self._by_head(query, self._query, self._mla.kv_lora_rank)

    def values(self, attended: Tensor) -> Tensor:
        return self._by_head(attended, self._value, self._mla.v_head_dim)

    def _by_head(self, x: Tensor, packed: Packed, size: int) -> Tensor:
        """Multiply x [tokens, heads, in] by each head's weights: [tokens, heads, size]."""
        tokens, heads, _ = x.shape
        rows = x.transpose(0, 1).reshape(heads * tokens, -1).contiguous()
        out = torch.from_numpy(multiply_groups(rows.numpy(), np.arange(heads + 1) * tokens, packed))
        by_head: Tensor = out[:, :size].reshape(heads, tokens, size).transpose(0, 1)
        return by_head


def _pack(weight: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Packed:
    """Pack weights [heads, out, in] with a layer for each head."""
    heads, outputs, inputs = weight.shape
    packed = packed_room(layers=heads, panels=panels_for(outputs), inputs=inputs, mode="float32")
    for head, values in enumerate(weight):
        fill(packed, head, values)
    return packed


def _as_one(packed: Packed) -> Packed:
    """Return a view of packed, which has a layer for each head, as one layer with the outputs of all of them."""
    weights = packed.weights.reshape(1, -1, *packed.weights.shape[2:])
    return Packed(weights, packed.scale.reshape(1, -1), packed.bias.reshape(1, -1))


def load_up_projection(spec: DecoderSpec, index: int, load: WeightLoader) -> UpProjection:
    """Read a layer's projection from latents, for the kernels of the loader's device."""
    assert spec.mla is not None
    part, heads = f"layers.{index}.kv_b.weight", spec.num_heads
    if load.packs:
        packed = PackedUpProjection(load.read(part).reshape(heads, -1, spec.mla.kv_lora_rank), spec.mla)
        load.nbytes += packed.nbytes
        return packed
    return DenseUpProjection(load.tensor(part).reshape(heads, -1, spec.mla.kv_lora_rank), spec.mla)
