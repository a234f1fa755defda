"""Paged attention on CUDA: torch's variable-length flash attention, and plain torch where it lacks what a layer needs.

num_splits=1 keeps a row's result independent of its batchmates. Sinks come from the log-sum-exp; soft-caps and heads
that flash attention can't take are computed by gathering the cache.
"""

import torch
from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn

from inference.layers.step import LayerCache, StepTensors

LARGEST_HEAD = 256


def takes(query: Tensor, cache: LayerCache, softcap: float | None) -> bool:
    """Return whether flash attention can compute this layer."""
    dim = query.shape[-1]
    same = cache.values.shape[-1] == dim and dim <= LARGEST_HEAD and dim % 8 == 0
    return softcap is None and same and query.dtype in (torch.bfloat16, torch.float16)


def flash_attention(
    query: Tensor, step: StepTensors, cache: LayerCache, *, scale: float, window: int | None, sinks: Tensor | None
) -> Tensor:
    """Compute what `paged_attention` does, without soft-caps, for heads that `takes` allows."""
    out, lse = varlen_attn(
        query, cache.keys, cache.values, step.query_starts, None, step.max_query, step.max_context,
        return_aux=AuxRequest(lse=True), scale=scale, window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != cache.keys.shape[2], seqused_k=step.context_lens, block_table=step.block_tables,
        num_splits=1,
    )  # fmt: skip
    return out if sinks is None else with_sinks(out, lse, sinks)


def with_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """Return attention with sinks from attention without: out [tokens, heads, dim], lse [heads, tokens], sinks [heads].

    softmax over scores and a sink is softmax over scores, times exp(lse) / (exp(lse) + exp(sink)).
    """
    share = torch.sigmoid(lse.float() - sinks.float()[:, None])  # [heads, tokens]
    return (out.float() * share.T[:, :, None]).to(out.dtype)


def gathered_attention(
    query: Tensor, step: StepTensors, cache: LayerCache, *, scale: float, window: int | None, softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    """Compute what `paged_attention` does for a step of decodes, one query a sequence, in shapes that never change.

    It reads every block of the tables, whatever the contexts are, so that a CUDA graph can hold it.
    """
    keys, values = (pool[step.block_tables.long()].flatten(1, 2).float() for pool in cache)  # [sequences, most, …]
    grouped = query.float().reshape(len(query), keys.shape[2], -1, query.shape[2])  # [sequences, KV heads, group, dim]
    scores = torch.einsum("skgd,stkd->skgt", grouped, keys) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    there, last = torch.arange(keys.shape[1], device=query.device), step.positions[:, None]
    hidden = there > last if window is None else (there > last) | (there <= last - window)
    scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
    if sinks is not None:
        sink = sinks.float().reshape(1, keys.shape[2], -1, 1).expand(len(query), -1, -1, 1)
        weights = torch.cat((scores, sink), dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    values = values.masked_fill(hidden[:, :, None, None], 0.0)  # unused blocks may hold anything
    return torch.einsum("skgt,stkd->skgd", weights, values).flatten(1, 2).to(query.dtype)
