"""Reads LoRA adapters as PEFT writes them, without torch: what they change, how strongly, whether they fit a base."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.errors import ArtifactError
from inference.artifacts.families import stored_tensors
from inference.artifacts.jsonfile import read_object
from inference.artifacts.safetensors import SafetensorsFile
from inference.artifacts.tensors import FLOAT_DTYPES, float_values
from inference.decoder_spec import DecoderSpec

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MAX_RANK = 256
MAX_PATTERN_CHARS = 200
_TENSOR = re.compile(r"(?:base_model\.model\.)?(?P<module>[^\s]{1,200})\.lora_(?P<side>[AB])(?:\.default)?\.weight")
_UNSUPPORTED = ("use_dora", "modules_to_save", "layer_replication", "trainable_token_indices", "megatron_config",
                "target_parameters", "exclude_modules", "alora_invocation_tokens", "use_qalora", "lora_bias")


@dataclass(frozen=True)
class AdaptedModule:
    """One linear layer that an adapter changes: name as transformers has it, rank, and the factor of B @ A."""

    name: str
    rank: int
    scale: float
    inputs: int
    outputs: int


class AdapterSource:
    """An adapter's folder. modules: by name. base: what its maker called the base model, or "".

    digest: SHA-256 of its configuration and weights, which stands for its content.
    Raises ArtifactError, naming what is not understood or not supported.
    """

    def __init__(self, folder: Path, *, max_rank: int = MAX_RANK) -> None:
        self._config = read_adapter_config(folder)
        self.base = str(self._config.get("base_model_name_or_path", ""))[:200]
        self._file = SafetensorsFile(folder / WEIGHTS)
        self._names: dict[str, dict[str, str]] = {}
        for name in self._file.entries:
            match = _TENSOR.fullmatch(name)
            if match is None:
                raise ArtifactError(WEIGHTS, f"tensor {name[:100]!r} is not a part of a LoRA")
            if self._names.setdefault(match["module"], {}).setdefault(match["side"], name) != name:
                raise ArtifactError(WEIGHTS, f"tensor {name[:100]!r} is there twice")
        if not self._names:
            raise ArtifactError(WEIGHTS, "holds no tensor")
        self.modules = {name: self._module(name, max_rank) for name in self._names}
        content = sha256((folder / CONFIG).read_bytes())
        with (folder / WEIGHTS).open("rb") as file:
            while part := file.read(1 << 20):
                content.update(part)
        self.digest = content.digest()

    def read(self, module: str, side: str) -> npt.NDArray[np.float32]:
        """Return a module's A [rank, inputs] or B [outputs, rank]."""
        name = self._names[module][side]
        entry = self._file.entries[name]
        return float_values(self._file.read_raw(name), entry.dtype, entry.shape)

    def check_base(self, spec: DecoderSpec, *, names: Collection[str] = ()) -> None:
        """Raise ArtifactError unless every module is a linear layer of a decoder of this spec, in its shape.

        names: what the base model is called, where that is known; an adapter made for another name is refused.
        """
        if names and self.base and not {_last_part(name) for name in names} & {_last_part(self.base)}:
            raise ArtifactError(CONFIG, f"was made for {self.base[:80]!r}, not for {sorted(names)[0][:80]!r}")
        shapes = {name: stored.shape for name, stored in stored_tensors(spec).items()}
        for module in self.modules.values():
            shape = shapes.get(f"{module.name}.weight")
            if shape is None or len(shape) != 2:
                raise ArtifactError(WEIGHTS, f"changes {module.name[:100]!r}, which the base model doesn't have")
            if shape != (module.outputs, module.inputs):
                raise ArtifactError(WEIGHTS, f"changes {module.name[:100]!r} as [{module.outputs}, {module.inputs}], "
                                             f"and the base model's tensor is {list(shape)}")
        self._check_targets()

    def _module(self, name: str, max_rank: int) -> AdaptedModule:
        sides = self._names[name]
        for side, other in (("A", "B"), ("B", "A")):
            if side not in sides:
                raise ArtifactError(WEIGHTS, f"tensor '{name[:100]}.lora_{side}.weight' is missing beside lora_{other}")
        a, b = (self._file.entries[sides[side]] for side in "AB")
        rank, alpha = self._rank(name), self._alpha(name)
        if rank > max_rank:
            raise ArtifactError(CONFIG, f"{name[:100]!r} has rank {rank:,}, and at most {max_rank:,} is served")
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != rank or b.shape[1] != rank:
            raise ArtifactError(WEIGHTS, f"tensors of {name[:100]!r} have the shapes {list(a.shape)} and "
                                         f"{list(b.shape)}, which are not of rank {rank}")
        if a.dtype not in FLOAT_DTYPES or b.dtype not in FLOAT_DTYPES:
            raise ArtifactError(WEIGHTS, f"tensors of {name[:100]!r} are not floating-point numbers")
        root = rank**0.5 if self._config.flag("use_rslora") else rank
        return AdaptedModule(name, rank, alpha / root, inputs=a.shape[1], outputs=b.shape[0])

    def _rank(self, name: str) -> int:
        return ConfigReader({"r": _pattern(self._config, "rank_pattern", name, self._config.get("r"))},
                            CONFIG).whole("r", limit=1 << 20)

    def _alpha(self, name: str) -> float:
        usual = self._config.get("lora_alpha", 8)
        return ConfigReader({"lora_alpha": _pattern(self._config, "alpha_pattern", name, usual)},
                            CONFIG).positive("lora_alpha")

    def _check_targets(self) -> None:
        """Every target must be the end of a changed module's name, so that none was left out of the file."""
        targets = self._config.get("target_modules")
        if not isinstance(targets, list):
            return  # a regular expression or "all-linear"; what the file holds counts
        for target in targets:
            if not any(name == target or name.endswith(f".{target}") for name in self.modules):
                raise ArtifactError(CONFIG, f"target_modules has {str(target)[:80]!r}, which no tensor of {WEIGHTS} is "
                                            "for")


def read_adapter_config(folder: Path) -> ConfigReader:
    """Return an adapter's configuration. Raises ArtifactError for one that is no LoRA, or of a kind not served."""
    config = ConfigReader(read_object(folder / CONFIG), CONFIG)
    if config.get("peft_type") != "LORA":
        config.refuse(f"peft_type is {str(config.get('peft_type'))[:40]!r}; only 'LORA' can be added")
    if config.get("auto_map") or (config.get("auto_mapping") or {}).get("custom_code"):
        config.refuse("asks for the model's own Python code, which is never run")
    for key in _UNSUPPORTED:
        if config.get(key):
            config.refuse(f"{key} is set, which is not supported")
    if config.get("bias", "none") != "none":
        config.refuse(f"bias is {str(config.get('bias'))[:40]!r}; only 'none' can be added")
    config.whole("r", limit=1 << 20)
    config.positive("lora_alpha", 8.0)
    return config


def _pattern(config: ConfigReader, key: str, module: str, usual: Any) -> Any:
    """Return what a pattern says of a module, else the usual value. PEFT takes keys as ends of names, or expressions.

    Source: peft.utils.other.get_pattern_key. Expressions are left out: those of strangers may never end.
    """
    patterns = config.get(key) or {}
    if not isinstance(patterns, dict):
        config.refuse(f"{key} is not an object")
    for pattern, value in patterns.items():
        plain = str(pattern).removeprefix("^")
        if len(plain) > MAX_PATTERN_CHARS or not re.fullmatch(r"[\w.\\]+", plain):
            config.refuse(f"{key} has {str(pattern)[:80]!r}, and only names of modules are taken")
        plain = plain.replace("\\.", ".")
        if module == plain or (module.endswith(f".{plain}") and not str(pattern).startswith("^")):
            return value
    return usual


def _last_part(name: str) -> str:
    """Return the last component of a model's name or path, as people compare them."""
    return name.rstrip("/").rsplit("/", 1)[-1].lower()
