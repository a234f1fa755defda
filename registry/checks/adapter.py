"""Checks on LoRA adapters: that they are of a kind that can be added at run time and fit their base."""

import re
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import read_object
from inference.artifacts.safetensors import SafetensorsFile
from inference.artifacts.source import ModelSource
from registry.checks.subject import Subject

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MAX_RANK = 1024
_PART = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")


def check_adapter_config(subject: Subject) -> str:
    """The adapter is a LoRA of a sensible rank."""
    config = read_object(subject.folder / CONFIG)
    if config.get("peft_type") != "LORA":
        raise ArtifactError(CONFIG, f"peft_type is {str(config.get('peft_type'))[:40]!r}; only 'LORA' can be added")
    if config.get("auto_map") or config.get("auto_mapping"):
        raise ArtifactError(CONFIG, "asks for the model's own Python code, which is never run")
    for key in ("use_dora", "modules_to_save", "layer_replication"):
        if config.get(key):
            raise ArtifactError(CONFIG, f"{key} is set, which is not supported")
    return f"LoRA of rank {_rank(config)} for {str(config.get('base_model_name_or_path'))[:80]!r}"


def _rank(config: dict[str, Any]) -> int:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or not 1 <= rank <= MAX_RANK:
        raise ArtifactError(CONFIG, f"r is {str(rank)[:40]!r}, not a whole number from 1 to {MAX_RANK:,}")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < 1e6:
        raise ArtifactError(CONFIG, f"lora_alpha is {str(alpha)[:40]!r}, not a positive number")
    return rank


def check_adapter_weights(subject: Subject) -> str:
    """Each changed matrix has its two parts, in shapes that fit each other and, where it is known, the base."""
    rank = _rank(read_object(subject.folder / CONFIG))
    pairs: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, entry in SafetensorsFile(subject.folder / WEIGHTS).entries.items():
        match = _PART.fullmatch(name)
        if match is None:
            raise ArtifactError(WEIGHTS, f"tensor {name[:100]!r} is not a part of a LoRA")
        pairs.setdefault(match["module"], {})[match["side"]] = entry.shape
        subject.parameters += _elements(entry.shape)
    if not pairs:
        raise ArtifactError(WEIGHTS, "holds no tensor")
    base = ModelSource.open(subject.base) if subject.base is not None else None
    for module, sides in pairs.items():
        _check_pair(module, sides, rank)
        if base is not None:
            _check_against_base(module, sides, base)
    if base is None:
        subject.warn(CONFIG, "no base model was given to compare the shapes with")
    else:
        subject.context_length = base.decoder_spec().max_position
    return f"{len(pairs):,} matrices changed, {subject.parameters:,} parameters"


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _check_pair(module: str, sides: dict[str, tuple[int, ...]], rank: int) -> None:
    for side, other in (("A", "B"), ("B", "A")):
        if side not in sides:
            raise ArtifactError(WEIGHTS, f"tensor '{module[:100]}.lora_{side}.weight' is missing beside lora_{other}")
    if any(len(shape) != 2 for shape in sides.values()) or sides["A"][0] != rank or sides["B"][1] != rank:
        raise ArtifactError(WEIGHTS, f"tensors of {module[:100]!r} have the shapes {list(sides['A'])} and "
                                     f"{list(sides['B'])}, which are not of rank {rank}")


def _check_against_base(module: str, sides: dict[str, tuple[int, ...]], base: ModelSource) -> None:
    info = base.tensors.get(f"{module}.weight")
    if info is None:
        raise ArtifactError(WEIGHTS, f"changes {module[:100]!r}, which the base model doesn't have")
    if info.shape != (sides["B"][0], sides["A"][1]):
        raise ArtifactError(WEIGHTS, f"changes {module[:100]!r} as [{sides['B'][0]}, {sides['A'][1]}], and the base "
                                     f"model's tensor is {list(info.shape)}")
