"""Draws the next token: a pure function of (logits row, SamplingParams, position), whoever else is in the batch."""

import numpy as np
import numpy.typing as npt

from inference.spec import SamplingParams

Float32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.intp]

BLOCK = 256

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


class BadLogitsError(ValueError):
    """A row has no token to choose: its largest logit is NaN or infinite."""


def uniform(seed: int, position: int) -> float:
    """The one random number of a row, in [0, 1) with 53 bits: output number `position` of SplitMix64 from `seed`.

    Counter-based, so any position is reached at once, alone or in a batch, also after a restart.
    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014); position counts from 1.
    """
    z = (seed + position * _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def sample(logits: Float32, params: SamplingParams, position: int) -> int:
    """Draw one id.

    logits: [vocabulary], only ids that may be drawn. position: index of the new output token, from 1.
    Greedy takes the largest logit, the lowest id on a tie. Otherwise temperature, top-k, top-p over what top-k left,
    then min-p relative to the likeliest (the order of transformers), and the inverse of the cumulated weights, in
    order of id, at `uniform(seed, position)`. Equal weights at a border are kept from the lowest id on.
    Raises BadLogitsError.
    """
    best = int(logits.argmax())
    peak = logits[best]
    if not np.isfinite(peak):
        raise BadLogitsError(f"the model gave {peak} as its largest logit")
    if params.greedy:
        return best
    ids: Ids | None = None  # None is all of them
    if 0 < params.top_k < len(logits):
        ids = largest(logits, params.top_k)
        logits = logits[ids]
    weights = logits - peak
    weights *= np.float32(1 / params.temperature)
    np.exp(weights, out=weights)
    if params.top_p < 1:
        weights *= _top_p(weights, params.top_p)
    if params.min_p > 0:
        weights *= weights >= np.float32(params.min_p)
    drawn = _draw(weights, uniform(params.seed, position))
    return drawn if ids is None else int(ids[drawn])


def _draw(weights: Float32, share: float) -> int:
    """The index where the weights, cumulated in order, pass `share` of their total: block by block, then inside one.

    Blocks are summed in float32, which is exact to about 1e-7 and a third of the work.
    """
    whole = len(weights) // BLOCK * BLOCK
    sums = np.append(weights[:whole].reshape(-1, BLOCK).sum(axis=1), weights[whole:].sum())
    cumulated = np.cumsum(sums, dtype=np.float64)
    target = share * cumulated[-1]
    block = int(np.searchsorted(cumulated, target, side="right"))
    inside = np.cumsum(weights[block * BLOCK:(block + 1) * BLOCK], dtype=np.float64)
    before = cumulated[block - 1] if block else 0.0
    last = int(np.searchsorted(inside, inside[-1], side="left"))  # rounding must not lead past the last weight
    return block * BLOCK + min(int(np.searchsorted(inside, target - before, side="right")), last)


def _top_p(weights: Float32, top_p: float) -> Mask:
    """The smallest set of largest weights whose share is at least top_p. The largest weight is 1."""
    target = top_p * float(weights.sum())
    count, share, ceiling = 0, 0.0, np.float32(np.inf)  # weights from the ceiling on: how many, and their sum
    for exponent in (-4, -7, -10, -13, -16, -149):  # find the border's band, to sort nothing else
        floor = np.float32(2.0**exponent)
        above = weights >= floor
        reached = float((weights * above).sum())
        if reached >= target:
            break
        count, share, ceiling = int(np.count_nonzero(above)), reached, floor
    band = np.sort(weights[above & (weights < ceiling)])[::-1]
    within = int(np.searchsorted(np.cumsum(band, dtype=np.float64), target - share, side="left"))
    within = min(within, len(band) - 1)  # rounding must not lead past the last weight
    return _at_least(weights, band[within], count + within + 1)


def largest(values: Float32, count: int) -> Ids:
    """Indices, ascending, of the `count` largest values; the lowest index first on a tie."""
    if count >= len(values):
        return np.arange(len(values))
    border = np.partition(values, len(values) - count)[len(values) - count]
    return np.flatnonzero(_at_least(values, border, count))


def _at_least(values: Float32, border: np.float32, count: int) -> Mask:
    """Which are the `count` largest values, `border` being the smallest of them; the first ones of equals."""
    above = values > border
    ties = np.flatnonzero(values == border)
    above[ties[:count - int(np.count_nonzero(above))]] = True
    return above
