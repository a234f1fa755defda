"""Causal attention of a step's queries over the paged cache: one call, a kernel for each device and a slow twin."""

import torch
from torch import Tensor

from inference.kernels.paged import attend_rows
from inference.layers.step import LayerCache, StepTensors


def paged_attention(
    query: Tensor, step: StepTensors, cache: LayerCache, *, scale: float, window: int | None = None,
    softcap: float | None = None, sinks: Tensor | None = None,
) -> Tensor:
    """Return softmax(scale * query @ keys) @ values for each query, [tokens, heads, value dim].

    query: [tokens, heads, key dim], rotated; its own keys and values are in the cache already. A query sees the
    positions up to its own, with a window only the last so many of them. softcap: scores become cap * tanh(x / cap).
    sinks: [heads], logits that take part in softmax and have no value.
    """
    if query.device.type == "cpu" and query.dtype == torch.float32:
        return _on_cpu(query, step, cache, scale=scale, window=window, softcap=softcap, sinks=sinks)
    if query.device.type == "cuda":
        from inference.layers import cuda_attention as cuda

        if cuda.takes(query, cache, softcap):
            return cuda.flash_attention(query, step, cache, scale=scale, window=window, sinks=sinks)
        if step.max_query == 1:
            return cuda.gathered_attention(query, step, cache, scale=scale, window=window, softcap=softcap, sinks=sinks)
    return attention_twin(query, step, cache, scale=scale, window=window, softcap=softcap, sinks=sinks)


def _on_cpu(
    query: Tensor, step: StepTensors, cache: LayerCache, *, scale: float, window: int | None, softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    heads = query.shape[1]
    sinks = torch.full((heads,), float("-inf")) if sinks is None else sinks.float()
    return torch.from_numpy(attend_rows(
        query.contiguous().numpy(), cache.keys.numpy(), cache.values.numpy(), step.sequence_of.numpy(),
        step.positions.numpy(), step.block_tables.numpy(), sinks.numpy(), scale=scale, window=window or 0,
        softcap=softcap or 0.0,
    ))  # fmt: skip


def attention_twin(
    query: Tensor, step: StepTensors, cache: LayerCache, *, scale: float, window: int | None = None,
    softcap: float | None = None, sinks: Tensor | None = None,
) -> Tensor:
    """Compute what `paged_attention` does in plain torch, sequence by sequence, on any device."""
    results = []
    starts, lengths = step.query_starts.tolist(), step.context_lens.tolist()
    for sequence, length in enumerate(lengths):
        rows = slice(starts[sequence], starts[sequence + 1])
        keys, values = (_read(pool, step.block_tables[sequence], length) for pool in cache)
        results.append(_attend(query[rows], keys, values, step.positions[rows], scale=scale, window=window,
                               softcap=softcap, sinks=sinks))
    return torch.cat(results)


def _read(pool: Tensor, table: Tensor, length: int) -> Tensor:
    """Return a sequence's first `length` entries, [length, heads, dim]."""
    return pool[table.long()].flatten(0, 1)[:length]


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, positions: Tensor, *, scale: float, window: int | None,
    softcap: float | None, sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.float().repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    there = torch.arange(len(keys), device=query.device)[None, :]
    hidden = there > positions[:, None]
    if window is not None:
        hidden |= there <= positions[:, None] - window
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        sink = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        weights = torch.cat((scores, sink), dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)
