"""Floors of time: what arithmetic and memory bandwidth alone allow, so that measured times have something beside them.

A prefill is bound by arithmetic, a decode step by reading the weights and the cache. Nothing overlaps worse than not at
all, so the larger of the two is a floor. Source: https://jax-ml.github.io/scaling-book/inference/
"""

from collections.abc import Iterator

from inference.planner.device import Device
from inference.planner.layout import Layout
from inference.planner.result import Line
from inference.planner.shape import Mlp, ModelShape


def flops_per_token(shape: ModelShape) -> int:
    """Return 2 FLOP for each active parameter but those that are looked up, such as the input embedding's."""
    return 2 * (shape.active - shape.looked_up)


def attention_flops(shape: ModelShape, context: int) -> tuple[int, int]:
    """Return the FLOP of scores and sums over values, for a whole prompt and for one more token behind it.

    A prompt's tokens see those before them: half of all pairs, or a window of them. An encoder's see all.
    """
    prompt = token = 0
    for mixer in shape.mixers:
        seen = min(context, mixer.window or context)
        seen_by_all = seen * (seen + 1) // 2 + (context - seen) * seen
        pairs = context * context if shape.kind == "encoder" else seen_by_all
        prompt += 2 * pairs * mixer.score_elements
        token += 2 * seen * mixer.score_elements
    return prompt, token


def distinct_experts(mlp: Mlp, tokens: int) -> float:
    """Return how many experts of a layer so many tokens visit, if each token's choice were by chance."""
    if not mlp.experts:
        return 0.0
    return float(mlp.experts * (1 - (1 - mlp.active / mlp.experts) ** tokens))


def read_share(shape: ModelShape, tokens: int) -> float:
    """Return the part of all weights that a step with so many tokens reads: not tables, nor experts left alone."""
    idle = sum((layer.mlp.experts - distinct_experts(layer.mlp, tokens)) * layer.mlp.expert for layer in shape.layers)
    return float(1 - (shape.looked_up + idle) / shape.total)


class Floors:
    """TTFT and TPOT of a layout on a device, with the lines that say how."""

    def __init__(self, shape: ModelShape, layout: Layout, device: Device, *, weight_bits: float, context: int,
                 concurrency: int, tp: int) -> None:
        self.shape, self.layout, self.device = shape, layout, device
        self.context, self.concurrency, self.tp = context, concurrency, tp
        self.flops = device.flops_for(weight_bits)
        self.weights = layout.weights_bytes(context)

    @property
    def known(self) -> bool:
        return self.flops > 0 and self.device.bandwidth > 0

    def _prefill(self) -> tuple[float, float]:
        """Return seconds of arithmetic and of reading the weights once, for one prompt."""
        total = self.context * flops_per_token(self.shape) + attention_flops(self.shape, self.context)[0]
        read = self.weights * read_share(self.shape, self.context)
        return total / (self.flops * self.tp), read / self.device.bandwidth

    def _decode(self) -> tuple[float, float]:
        """Return seconds of arithmetic and of reading weights and caches, for one step of all requests."""
        each = flops_per_token(self.shape) + attention_flops(self.shape, self.context)[1]
        read = self.weights * read_share(self.shape, self.concurrency)
        cache = self.concurrency * self.layout.request_bytes(self.context)
        return each * self.concurrency / (self.flops * self.tp), (read + cache) / self.device.bandwidth

    @property
    def ttft_s(self) -> float | None:
        return max(self._prefill()) if self.known else None

    @property
    def tpot_s(self) -> float | None:
        """None too for encoders, which give no further tokens."""
        return max(self._decode()) if self.known and self.shape.kind == "decoder" else None

    def lines(self) -> Iterator[Line]:
        shape, context = self.shape, self.context
        tables = f" − {shape.looked_up:,} looked up" if shape.looked_up else ""
        yield Line("FLOP per token", f"2 × ({shape.active:,} active{tables})", flops_per_token(shape), "FLOP")
        prompt, token = attention_flops(shape, context)
        yield Line("Attention of a whole prompt", f"2 × pairs of {context:,} tokens × "
                   f"{sum(mixer.score_elements for mixer in shape.mixers):,} multiply-adds", prompt, "FLOP")
        if self.ttft_s is None:
            return
        ranks = f" × {self.tp} ranks" if self.tp > 1 else ""
        compute, read = self._prefill()
        yield Line("TTFT floor", f"max(({context:,} × {flops_per_token(shape):,} + {prompt:,}) FLOP / "
                   f"({self.flops / 1e12:g} TFLOP/s{ranks}) = {compute:.4g} s, {read_share(shape, context):.1%} of the "
                   f"weights / {self.device.bandwidth / 1e9:g} GB/s = {read:.4g} s)", self.ttft_s, "seconds")
        if self.tpot_s is None:
            return
        compute, read = self._decode()
        yield Line("TPOT floor", f"max({self.concurrency:,} × ({flops_per_token(shape):,} + {token:,}) FLOP / "
                   f"({self.flops / 1e12:g} TFLOP/s{ranks}) = {compute:.4g} s, "
                   f"({read_share(shape, self.concurrency):.1%} of the weights + {self.concurrency:,} × "
                   f"{self.layout.request_bytes(context):,} bytes of KV) / {self.device.bandwidth / 1e9:g} GB/s = "
                   f"{read:.4g} s)", self.tpot_s, "seconds")
