"""Normalisation over the last axis, in float32: RMS norm, RMS norm with 1 + weight, layer norm."""

import torch
from torch import Tensor

from inference.decoder_spec import DecoderSpec
from inference.layers.weights import WeightLoader


class Norm:
    """A norm with its weights. It computes in float32 and returns the type of its input."""

    def __init__(self, weight: Tensor, epsilon: float, *, bias: Tensor | None = None, centred: bool = False) -> None:
        self._weight, self._bias, self._epsilon, self._centred = weight.float(), bias, epsilon, centred

    @classmethod
    def load(cls, spec: DecoderSpec, name: str, load: WeightLoader) -> "Norm":
        """Return the norm of that name (a part without .weight), of the kind that the spec says."""
        weight = load.tensor(f"{name}.weight")
        if spec.norm == "rms_plus_one":
            weight = weight.float() + 1.0
        bias = load.tensor(f"{name}.bias") if f"{name}.bias" in load else None
        return cls(weight, spec.rms_norm_eps, bias=bias, centred=spec.norm == "layernorm")

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [..., size] normed."""
        wide = x.float()
        if self._centred:
            wide = wide - wide.mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._epsilon) * self._weight
        return (wide if self._bias is None else wide + self._bias.float()).to(x.dtype)
