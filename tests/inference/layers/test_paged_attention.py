"""Every way to attend over the paged cache computes the same: the CPU kernel, gathering for CUDA, the slow twin."""

from typing import Any

import pytest
import torch
from torch import Tensor

from inference.layers.cuda_attention import gathered_attention, with_sinks
from inference.layers.paged_attention import attention_twin, paged_attention
from inference.layers.step import LayerCache, StepTensors

BLOCK, BLOCKS = 16, 12
CASES: dict[str, dict[str, Any]] = {
    "plain": {}, "window": {"window": 7}, "window of one": {"window": 1}, "soft-cap": {"softcap": 3.0},
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    "all": {"window": 20, "softcap": 5.0, "sinks": torch.tensor([0.1, 0.2, 0.3, 4.0])},
}  # fmt: skip


def _step(contexts: list[int], counts: list[int]) -> StepTensors:
    """Return a step in which each sequence's last `count` of `context` tokens are new, in blocks that lie mixed."""
    order = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(3)).tolist()
    tables = torch.zeros(len(contexts), 4, dtype=torch.int32)
    for row, context in enumerate(contexts):
        for at in range(-(-context // BLOCK)):
            tables[row, at] = order.pop()
    sequence = torch.repeat_interleave(torch.arange(len(contexts)), torch.tensor(counts))
    positions = torch.cat([torch.arange(context - count, context)
                           for context, count in zip(contexts, counts, strict=True)])
    return StepTensors(
        token_ids=positions, positions=positions, slots=positions, sequence_of=sequence,
        query_starts=torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32),
        context_lens=torch.tensor(contexts, dtype=torch.int32), block_tables=tables, rotary=(),
        max_query=max(counts), max_context=max(contexts),
    )  # fmt: skip


def _cache(heads: int, dims: tuple[int, int] = (24, 24)) -> LayerCache:
    generator = torch.Generator().manual_seed(1)
    return LayerCache(*(torch.randn(BLOCKS, BLOCK, heads, dim, generator=generator) for dim in dims))


def _query(tokens: int, dim: int = 24) -> Tensor:
    return torch.randn(tokens, 4, dim, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_kernel_equals_its_twin(name: str, heads: int) -> None:
    step, cache, query = _step([33, 5, 48], [9, 5, 1]), _cache(heads), _query(15)
    ours = paged_attention(query, step, cache, scale=0.2, **CASES[name])
    torch.testing.assert_close(ours, attention_twin(query, step, cache, scale=0.2, **CASES[name]), atol=1e-5, rtol=1e-5)


def test_the_kernel_takes_values_of_another_size() -> None:
    step, cache, query = _step([40], [3]), _cache(1, (24, 10)), _query(3)
    ours = paged_attention(query, step, cache, scale=0.2)
    assert ours.shape == (3, 4, 10)
    torch.testing.assert_close(ours, attention_twin(query, step, cache, scale=0.2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_gathering_for_decodes_equals_the_twin_whatever_unused_blocks_hold(name: str) -> None:
    step, cache, query = _step([33, 5, 48], [1, 1, 1]), _cache(2), _query(3)
    case = {"window": None, "softcap": None, "sinks": None} | CASES[name]
    wanted = attention_twin(query, step, cache, scale=0.2, **case)
    used = set(step.block_tables.flatten().tolist())
    for block in set(range(BLOCKS)) - used:
        cache.keys[block] = cache.values[block] = float("nan")
    cache.keys[step.block_tables[1, 0], 5:] = cache.values[step.block_tables[1, 0], 5:] = float("nan")
    ours = gathered_attention(query, step, cache, scale=0.2, **case)
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)


def test_sinks_from_the_log_sum_exp_equal_a_softmax_with_them() -> None:
    scores, values = torch.randn(4, 3, 9), torch.randn(9, 4, 8)  # [heads, tokens, keys], [keys, heads, dim]
    sinks = torch.tensor([0.5, -1.0, 2.0, 9.0])
    plain = torch.einsum("htk,khd->thd", scores.softmax(-1), values)
    both = torch.cat((scores, sinks[:, None, None].expand(-1, 3, 1)), dim=-1).softmax(-1)[..., :-1]
    torch.testing.assert_close(with_sinks(plain, scores.logsumexp(-1), sinks),
                               torch.einsum("htk,khd->thd", both, values))


def test_the_twin_equals_transformers_eager_attention() -> None:
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    step, cache, query = _step([30], [30]), _cache(2), _query(30)
    keys, values = (pool[step.block_tables[0].long()].flatten(0, 1)[:30] for pool in cache)
    there = torch.arange(30)
    seen = (there[None] <= there[:, None]) & (there[None] > there[:, None] - 7)
    mask = torch.zeros(1, 1, 30, 30).masked_fill(~seen, float("-inf"))
    module = torch.nn.Module()
    module.num_key_value_groups, module.head_dim = 2, 24  # type: ignore[assignment]
    theirs, _ = eager_attention_forward(
        module.eval(), query.transpose(0, 1)[None], keys.transpose(0, 1)[None], values.transpose(0, 1)[None], mask,
        scaling=0.2, softcap=5.0,
    )  # fmt: skip
    ours = attention_twin(query, step, cache, scale=0.2, window=7, softcap=5.0)
    torch.testing.assert_close(ours, theirs[0], atol=1e-5, rtol=1e-5)
