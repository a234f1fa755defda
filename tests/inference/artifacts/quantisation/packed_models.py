"""Tiny llama checkpoints whose linear layers a test stores in a quantised form."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.tiny_models import write_tiny_llama

Tensors = dict[str, torch.Tensor]
StoreLayer = Callable[[torch.Tensor], Tensors]
SHAPE = {"hidden_size": 192, "intermediate_size": 320, "num_attention_heads": 6, "num_key_value_heads": 2,
         "tie_word_embeddings": False}  # fmt: skip


def is_linear(name: str) -> bool:
    return name.endswith("_proj.weight")


def write_packed(folder: Path, config: dict[str, Any] | None, store: StoreLayer, *, keep: tuple[str, ...] = (),
                 **changes: Any) -> Tensors:
    """Write a checkpoint in which store(weight) gives the tensors of each layer, with its quantization_config.

    keep: layers whose name holds one of these words are stored as they are. Returns all that was stored.
    """
    write_tiny_llama(folder, **(SHAPE | changes))
    stored: Tensors = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if not is_linear(name) or any(word in name for word in keep):
            stored[name] = weight
            continue
        for part, value in store(weight).items():
            stored[f"{name.removesuffix('.weight')}.{part}"] = value.contiguous()
    save(folder, stored)
    if config is not None:
        set_quantization_config(folder, config)
    return stored


def save(folder: Path, stored: Tensors) -> None:
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


def set_quantization_config(folder: Path, settings: dict[str, Any] | None) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config", None)
    if settings is not None:
        config["quantization_config"] = settings
    (folder / "config.json").write_text(json.dumps(config))


def layers_of(stored: Tensors, part: str) -> list[str]:
    """Return the names of the layers that have a tensor of this name."""
    return [name.removesuffix(f".{part}") for name in stored if name.endswith(f".{part}")]
