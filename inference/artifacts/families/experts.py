"""Where checkpoints keep the parts of a mixture of experts: a tensor for each expert, or stacks of all of them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.parts import Array, Names, Shape, Stored, moe_parts, placed
from inference.decoder_spec import LayerSpec, MoeSpec

ExpertLayout = Callable[[MoeSpec, int], dict[str, Stored]]
"""(moe, hidden size) → the tensors of a layer that hold its experts and router, named without the layer's prefix."""


def one_by_one(
    stem: str, *, router: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> ExpertLayout:
    """Return the layout of published checkpoints: stem.number.projection for each expert, and a router beside them."""

    def layout(moe: MoeSpec, hidden: int) -> dict[str, Stored]:
        names: dict[str, tuple[str, ...]] = {router: ("router",)}
        for number in range(moe.num_experts):
            for stored, part in ((gate, "gate"), (up, "up"), (down, "down")):
                names[f"{stem}.{number}.{stored}"] = (f"expert.{number}.{part}",)
        return placed(names, _expert_parts(moe, hidden))

    return layout


def stacked(*, router: str = "mlp.gate") -> ExpertLayout:
    """Return transformers' layout in memory: gate_up_proj [experts, 2I, H] and down_proj [experts, H, I]."""

    def layout(moe: MoeSpec, hidden: int) -> dict[str, Stored]:
        inner, count = moe.intermediate_size, moe.num_experts
        stacks = {"gate_up_proj": Stored((count, 2 * inner, hidden), _gate_up_parts(moe, "weight"), lead=2),
                  "down_proj": Stored((count, hidden, inner), _down_parts(moe, hidden, "weight"), lead=2)}
        return _with_router(router, {f"mlp.experts.{name}": stack for name, stack in stacks.items()}, moe, hidden)

    return layout


def stacked_inputs_first(*, router: str = "mlp.router") -> ExpertLayout:
    """Return gpt_oss' layout: gate_up_proj [experts, H, 2I] with gate and up in turn, down_proj [experts, I, H]."""

    def layout(moe: MoeSpec, hidden: int) -> dict[str, Stored]:
        inner, count = moe.intermediate_size, moe.num_experts
        stacks = {
            "gate_up_proj": Stored((count, hidden, 2 * inner), _gate_up_parts(moe, "weight"), lead=2,
                                   arrange=lambda values: _halves(values.swapaxes(1, 2))),
            "gate_up_proj_bias": Stored((count, 2 * inner), _gate_up_parts(moe, "bias"), lead=2, arrange=_halves),
            "down_proj": Stored((count, inner, hidden), _down_parts(moe, hidden, "weight"), lead=2,
                                arrange=lambda values: values.swapaxes(1, 2)),
            "down_proj_bias": Stored((count, hidden), _down_parts(moe, hidden, "bias"), lead=2),
        }  # fmt: skip
        return _with_router(router, {f"mlp.experts.{name}": stack for name, stack in stacks.items()}, moe, hidden)

    return layout


def _halves(values: Array) -> Array:
    """Bring outputs [experts, 2I, ...] that alternate between gate and up into gate's and then up's."""
    return np.concatenate([values[:, 0::2], values[:, 1::2]], axis=1)


def _expert_parts(moe: MoeSpec, hidden: int) -> dict[str, Shape]:
    parts = moe_parts(moe, hidden)
    return {part: shape for part, shape in parts.items() if part.startswith(("expert.", "router."))}


def _gate_up_parts(moe: MoeSpec, suffix: str) -> tuple[tuple[str, int], ...]:
    return tuple((f"expert.{number}.{part}.{suffix}", moe.intermediate_size)
                 for number in range(moe.num_experts) for part in ("gate", "up"))


def _down_parts(moe: MoeSpec, hidden: int, suffix: str) -> tuple[tuple[str, int], ...]:
    return tuple((f"expert.{number}.down.{suffix}", hidden) for number in range(moe.num_experts))


def _with_router(router: str, stacks: dict[str, Stored], moe: MoeSpec, hidden: int) -> dict[str, Stored]:
    parts = {part: shape for part, shape in moe_parts(moe, hidden).items() if part.startswith("router.")}
    names: Names = {router: ("router",)}
    return stacks | placed(names, parts)


def with_experts(layers: tuple[LayerSpec, ...], has_experts: list[bool]) -> tuple[LayerSpec, ...]:
    """Return the layers with experts where has_experts says so; no layers stand for as many usual ones."""
    layers = layers or (LayerSpec(),) * len(has_experts)
    return tuple(replace(layer, moe=moe) for layer, moe in zip(layers, has_experts, strict=True))


def sparse_layers(reader: ConfigReader, count: int) -> list[bool]:
    """Return which layers of a Qwen configuration have experts: every decoder_sparse_step-th, but mlp_only_layers."""
    step, plain = reader.whole("decoder_sparse_step", 1), reader.get("mlp_only_layers", [])
    if not isinstance(plain, list) or not all(isinstance(index, int) for index in plain):
        reader.refuse("mlp_only_layers is not a list of layers")
    return [index not in plain and (index + 1) % step == 0 for index in range(count)]
