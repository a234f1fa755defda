"""The expert loads of a mixture: how often each expert of each layer was visited, and which layers are uneven."""

from dataclasses import dataclass

from redis.exceptions import RedisError

from webapp.serving.stats import expert_loads


@dataclass(frozen=True, kw_only=True)
class LayerLoad:
    """One layer. busiest: its most visited expert, with its share of the visits; idle: experts never visited.

    uneven: the busiest expert's visits over those of an even spread, 1 where all are equal.
    """

    layer: int
    busiest: int
    share: float
    uneven: float
    idle: int


@dataclass(frozen=True, kw_only=True)
class Heat:
    """counts: visits, [layers with experts, experts]; tokens: of how many of the latest tokens."""

    layers: list[int]
    counts: list[list[int]]
    tokens: int

    @property
    def experts(self) -> int:
        return len(self.counts[0])

    @property
    def lines(self) -> list[LayerLoad]:
        return [_line(layer, counts) for layer, counts in zip(self.layers, self.counts, strict=True)]


def expert_heat(version_pk: int) -> Heat | None:
    """Return the loads of a version's experts over all of its engines; None while no engine has computed any."""
    try:
        found = [load for load in expert_loads(version_pk) if load.tokens and load.counts and load.counts[0]]
    except RedisError:
        return None
    if not found:
        return None
    alike = [load for load in found if load.layers == found[0].layers]
    counts = [[sum(visits) for visits in zip(*rows, strict=True)]
              for rows in zip(*(load.counts for load in alike), strict=True)]
    return Heat(layers=found[0].layers, counts=counts, tokens=sum(load.tokens for load in alike))


def _line(layer: int, counts: list[int]) -> LayerLoad:
    total, most = sum(counts), max(counts)
    return LayerLoad(layer=layer, busiest=counts.index(most), share=most / total if total else 0.0,
                     uneven=most * len(counts) / total if total else 0.0, idle=counts.count(0))
