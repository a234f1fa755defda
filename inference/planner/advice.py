"""Says in words why a model doesn't fit and what would make it fit."""

from inference.planner.device import Device
from inference.planner.layout import rank_share
from inference.planner.precision import FORMATS
from inference.planner.shape import ModelShape
from inference.spec import SpecError

MOST_RANKS = 64


def amount(nbytes: float) -> str:
    """Return bytes for people, in decimal units as memory is sold: "32.8 GB"."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(nbytes) < 1000 or unit == "TB":
            return f"{nbytes:,.0f} bytes" if unit == "bytes" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1000
    raise AssertionError("unreachable")


def reasons_against(
    shape: ModelShape, device: Device, *, total: int, weights: int, kv: int, kv_wanted: int, context: int,
    concurrency: int, max_concurrency: int, max_context: int,
) -> tuple[str, ...]:
    """Return what is missing, then each change that alone would make the model fit.

    kv, kv_wanted: bytes that the KV cache gets, and that all requests at their full length would take.
    """
    memory = device.memory_bytes
    if total <= memory:
        reasons = [f"{concurrency:,} requests of {context:,} tokens take {amount(kv_wanted)} of KV cache, and it gets "
                   f"{amount(kv)}."]
        if total - kv + kv_wanted <= memory:
            reasons.append(f"With a KV budget of {kv_wanted:,} bytes it fits.")
    else:
        reasons = [f"It needs {amount(total)} and {device.name} has {amount(memory)}: "
                   f"{amount(total - memory)} are missing."]
    if 0 < max_concurrency < concurrency:
        reasons.append(f"With {max_concurrency:,} requests at once instead of {concurrency:,} it fits.")
    if 0 < max_context < context:
        reasons.append(f"With a context of {max_context:,} tokens instead of {context:,} it fits.")
    if len(reasons) > 1:
        return tuple(reasons)
    rest = total - weights
    for name in ("int8", "int4"):
        compact = _weights_in(shape, name)
        if compact < weights and compact + rest <= memory:
            reasons.append(f"With weights in {name} ({amount(compact)}) it fits.")
            break
    if ranks := _ranks_that_fit(shape, memory, weights, rest):
        reasons.append(f"Shared out over {ranks} such devices (tensor parallelism) it fits.")
    if len(reasons) == 1:
        reasons.append(f"A device with at least {amount(total)} of memory would hold it.")
    return tuple(reasons)


def _weights_in(shape: ModelShape, name: str) -> int:
    known = FORMATS[name]
    compact = shape.linear_parameters
    return round(compact * known.bytes + (shape.total - compact) * 2)


def _ranks_that_fit(shape: ModelShape, memory: int, weights: int, rest: int) -> int:
    """Return the fewest ranks, in powers of two, whose share of the weights fits beside the rest; 0 for none."""
    ranks = 2
    while ranks <= MOST_RANKS:
        try:
            share = rank_share(shape, ranks).total / shape.total
        except SpecError:
            return 0
        if weights * share + rest <= memory:
            return ranks
        ranks *= 2
    return 0
