"""Quantises a model layer by layer, each with the inputs that the layers before it, already quantised, give it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from inference.artifacts.errors import ArtifactError
from inference.quantising.blocks import SMOOTHED, blocks_of, plain_blocks
from inference.quantising.calibration import LayerWalk, rounded_inputs
from inference.quantising.methods import Method
from inference.quantising.solver import Quantised

OnLayer = Callable[[int, int], None]


@torch.no_grad()
def quantise(model: Any, sequences: list[list[int]], method: Method, *, on_layer: OnLayer) -> dict[str, Quantised]:
    """Quantise every linear layer of the decoder's layers in place; return the rounded weights by module name.

    on_layer(done, total). Raises ArtifactError when the method can't quantise this model.
    """
    check(model, method)
    walk = LayerWalk(model, sequences)
    prefix = next(name for name, module in model.named_modules() if module is walk.layers)
    results: dict[str, Quantised] = {}
    for index, layer in enumerate(walk.layers):
        blocks = blocks_of(layer, model.config) if method.scales_inputs else plain_blocks(layer)
        if method.scales_inputs:  # before anything is rounded: a block's scaling changes weights of the block before it
            for block in blocks:
                method.scale(block, walk.inputs(index, block.modules))
        done: list[nn.Linear] = []
        for block in blocks:
            with rounded_inputs(done, method.round_inputs):
                inputs = walk.inputs(index, block.modules)
            rounded = method.quantise(block, inputs)
            for name, module, result in zip(block.names, block.modules, rounded, strict=True):
                if not result.values.isfinite().all():
                    raise ArtifactError("weights", f"layer {prefix}.{index}.{name} gives values that are no numbers")
                module.weight.copy_(result.values)
                results[f"{prefix}.{index}.{name}"] = result
            done += block.modules
        with rounded_inputs(done, method.round_inputs):
            walk.advance(index)
        on_layer(index + 1, len(walk.layers))
    return results


def check(model: Any, method: Method) -> None:
    """Raise ArtifactError, with names and sizes, when the method can't quantise the model."""
    if method.scales_inputs and model.config.model_type not in SMOOTHED:
        raise ArtifactError("config.json", f"this method scales layers' inputs, which it can do for "
                                           f"{', '.join(SMOOTHED)}, not for {model.config.model_type}")
    size = method.grid.group_size
    for name, module in model.named_modules():
        if ".layers." in name and isinstance(module, nn.Linear) and size is not None and module.in_features % size:
            raise ArtifactError("weights", f"layer {name} has {module.in_features:,} inputs, which groups of {size} do "
                                           "not divide: choose another --group-size")
