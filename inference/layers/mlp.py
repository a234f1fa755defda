"""The decoder's MLP: an activation of one projection times another, projected back."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from inference.decoder_spec import DecoderSpec
from inference.layers.step import StepTensors
from inference.layers.weights import WeightLoader

SWIGLU_SLOPE = 1.702  # gpt_oss' sigmoid(1.702 x), as in the sigmoid approximation of GELU


def gate_function(spec: DecoderSpec) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function of (gate, up), any equal shapes, that lies between an MLP's projections."""
    if spec.activation == "silu":
        return lambda gate, up: F.silu(gate) * up
    if spec.activation == "gelu":
        return lambda gate, up: F.gelu(gate) * up
    if spec.activation == "gelu_tanh":
        return lambda gate, up: F.gelu(gate, approximate="tanh") * up
    limit = spec.activation_limit
    return lambda gate, up: clamped_swiglu(gate, up, limit)


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """Return gpt_oss' activation: both sides clamped, gate * sigmoid(1.702 gate) * (up + 1)."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(gate * SWIGLU_SLOPE) * (up + 1)


class Mlp:
    """down(activation(gate(x), up(x))). prefix: of its parts' names, for an MLP that is not the layer's only one."""

    def __init__(self, spec: DecoderSpec, index: int, load: WeightLoader, *, prefix: str = "") -> None:
        start = f"layers.{index}.{prefix}"
        self._gate_up = load.linear(f"{start}gate", f"{start}up")
        self._down = load.linear(f"{start}down")
        self._activate = gate_function(spec)

    def __call__(self, x: Tensor, step: StepTensors) -> Tensor:
        """Return what the MLP adds for x [tokens, hidden]."""
        gate, up = self._gate_up(x, step).chunk(2, dim=-1)
        return self._down(self._activate(gate, up), step)
