"""Draws the next tokens of many rows on the device that has the logits: the twin of inference.engine.sampler in torch.

The random number of a row is the same, from its seed and position; the rest is the same arithmetic on tensors.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from inference.engine.batch import BAD, Draw
from inference.engine.sampler import uniform
from inference.spec import SamplingParams


def sample_rows(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Draw one id for each row, as `sampler.sample` does; BAD where it would raise. [rows], int64.

    logits: [rows, vocabulary], float32, only ids that may be drawn.
    """
    peak = logits.max(dim=-1, keepdim=True).values
    ids = torch.arange(logits.shape[1], device=logits.device)
    best = torch.where(logits == peak, ids, logits.shape[1]).min(dim=-1).values  # the lowest id on a tie
    if not all(draw.params.greedy for draw in draws):
        drawn = _sampled(logits, peak, draws)
        greedy = torch.tensor([draw.params.greedy for draw in draws], device=logits.device)
        best = torch.where(greedy, best, drawn)
    return torch.where(torch.isfinite(peak[:, 0]), best, BAD)


def _column(values: Sequence[float], logits: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, device=logits.device, dtype=dtype)[:, None]


def _sampled(logits: Tensor, peak: Tensor, draws: Sequence[Draw]) -> Tensor:
    params = [draw.params for draw in draws]
    inverse = _column([1.0 if each.greedy else 1 / each.temperature for each in params], logits)
    weights = torch.exp((logits - peak) * inverse)
    if any(each.top_p < 1 or 0 < each.top_k < logits.shape[1] for each in params):
        weights = _truncated(logits, weights, params)
    weights = weights * (weights >= _column([each.min_p for each in params], logits))
    shares = _column([uniform(draw.params.seed, draw.position) for draw in draws], logits, torch.float64)
    cumulated = weights.double().cumsum(-1)
    total = cumulated[:, -1:].contiguous()
    first = torch.searchsorted(cumulated, shares * total, right=True)
    last = torch.searchsorted(cumulated, total)  # rounding must not lead past the last weight
    return torch.minimum(first, last)[:, 0]


def _truncated(logits: Tensor, weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Zero the weights that top-k and then top-p leave out; equals are kept from the lowest id on."""
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    ranked = weights.gather(-1, order)
    rank = torch.arange(logits.shape[1], device=logits.device)
    top_k = _column([each.top_k if each.top_k > 0 else logits.shape[1] for each in params], logits, torch.int64)
    ranked = ranked * (rank < top_k)
    before = ranked.double().cumsum(-1) - ranked.double()
    top_p = _column([each.top_p for each in params], logits, torch.float64)
    whole = ranked.double().sum(-1, keepdim=True)
    kept = (before < top_p * whole) | (top_p >= 1) | (rank == 0)
    return torch.zeros_like(weights).scatter(-1, order, ranked * kept)
