"""Reads the config_groups of a compressed-tensors quantization_config: which modules, how many bits, scales of what."""

from dataclasses import dataclass
from typing import Any, Literal

from inference.artifacts.errors import ArtifactError
from inference.artifacts.quantisation.patterns import Targets, read_patterns
from inference.artifacts.quantisation.scheme import ActivationScheme

PACKED = "pack-quantized"
FORMATS = (PACKED, "int-quantized", "float-quantized", "naive-quantized")
STRATEGIES = ("tensor", "channel", "group", "block")
MAX_GROUPS = 1000


@dataclass(frozen=True, kw_only=True)
class Group:
    """How the modules of one config group are stored.

    group_size: inputs that share a scale, for the strategy group. block: (outputs, inputs) that do, for block.
    """

    targets: Targets
    format: str
    kind: Literal["int", "float"]
    bits: int
    strategy: str
    symmetric: bool
    group_size: int
    block: tuple[int, int] | None
    activations: ActivationScheme | None

    @property
    def label(self) -> str:
        """What pages and logs call it."""
        name = f"INT{self.bits}" if self.kind == "int" else f"FP{self.bits}"
        if self.strategy == "group":
            name += f" (groups of {self.group_size})"
        elif self.block is not None:
            name += f" (blocks of {self.block[0]} × {self.block[1]})"
        return name + (" W8A8" if self.activations is not None and self.bits == self.activations.bits == 8 else "")


def read_groups(config: dict[str, Any], *, file: str) -> list[Group]:
    """Return the groups of a quantization_config. Raises ArtifactError for what is wrong or not understood."""
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups or len(groups) > MAX_GROUPS:
        raise ArtifactError(file, f"quantization_config: config_groups is not a map of 1 to {MAX_GROUPS:,} groups")
    return [_group(name, group, config.get("format"), file) for name, group in groups.items()]


def _group(name: str, group: Any, form: Any, file: str) -> Group:
    where = f"quantization_config: config_groups.{name[:60]}"
    if not isinstance(group, dict) or not isinstance(weights := group.get("weights"), dict):
        raise ArtifactError(file, f"{where} does not say how weights are stored")
    form = group.get("format") or form
    if form not in FORMATS:
        raise ArtifactError(file, f"{where}: the format {str(form)[:40]!r} is not supported (known: "
                                  f"{', '.join(FORMATS)})")
    kind, bits = weights.get("type", "int"), weights.get("num_bits", 8)
    if kind not in ("int", "float") or type(bits) is not int or not 2 <= bits <= 8 or (kind == "float" and bits != 8):
        raise ArtifactError(file, f"{where}: weights of type {str(kind)[:40]!r} with {str(bits)[:40]} bits are not "
                                  "supported (known: int with 2 to 8, float with 8)")
    if form == PACKED and kind == "float":
        raise ArtifactError(file, f"{where}: the format {PACKED!r} can't hold floating weights")
    strategy, group_size, block = _strategy(weights, where, file)
    return Group(
        targets=Targets(read_patterns(group.get("targets"), key=f"{name[:60]}.targets", file=file),
                        key=f"{name[:60]}.targets", file=file),
        format=form, kind=kind, bits=bits, strategy=strategy, symmetric=weights.get("symmetric", True) is not False,
        group_size=group_size, block=block, activations=_activations(group.get("input_activations"), where, file),
    )  # fmt: skip


def _strategy(weights: dict[str, Any], where: str, file: str) -> tuple[str, int, tuple[int, int] | None]:
    """Return strategy, group size (0 for others) and block. What isn't said follows from group_size."""
    size = weights.get("group_size")
    if size is not None and (type(size) is not int or not -1 <= size < 2**20 or size == 0):
        raise ArtifactError(file, f"{where}: group_size is {str(size)[:40]!r}, not a positive whole number or -1")
    strategy = weights.get("strategy") or ("tensor" if size is None else "group" if size > 0 else "channel")
    if strategy not in STRATEGIES:
        raise ArtifactError(file, f"{where}: the strategy {str(strategy)[:40]!r} is not supported (known: "
                                  f"{', '.join(STRATEGIES)})")
    if strategy == "group" and (size is None or size < 1):
        raise ArtifactError(file, f"{where}: the strategy group needs a group_size")
    block = weights.get("block_structure")
    if isinstance(block, str):
        block = [int(part) if part.isdecimal() else 0 for part in block.split("x")]
    if (strategy == "block") != (block is not None):
        raise ArtifactError(file, f"{where}: block_structure belongs to the strategy block, and only to it")
    if block is not None and (not isinstance(block, list) or len(block) != 2
                              or not all(type(part) is int and 0 < part < 2**20 for part in block)):
        raise ArtifactError(file, f"{where}: block_structure is {str(block)[:40]}, not two sizes")
    return str(strategy), size or 0, (block[0], block[1]) if block is not None else None


def _activations(value: Any, where: str, file: str) -> ActivationScheme | None:
    if value is None:
        return None
    kind = value.get("type", "int") if isinstance(value, dict) else None
    bits = value.get("num_bits", 8) if isinstance(value, dict) else None
    if kind not in ("int", "float") or type(bits) is not int or not 2 <= bits <= 16:
        raise ArtifactError(file, f"{where}: input_activations is not understood")
    return ActivationScheme(kind=kind, bits=bits, dynamic=bool(value.get("dynamic")),
                            per=str(value.get("strategy") or "tensor")[:40])
