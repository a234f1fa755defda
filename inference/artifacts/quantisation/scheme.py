"""What a way of storing linear layers must say: which tensors are a layer's, its shape, the values they stand for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.tensors import INTEGER_DTYPES, TensorInfo, float_values, integer_values

Float32 = npt.NDArray[np.float32]
ReadRaw = Callable[[str], npt.NDArray[np.uint8]]


@dataclass(frozen=True, kw_only=True)
class ActivationScheme:
    """How a checkpoint wants a layer's inputs rounded. dynamic: scales are found at run time, not stored."""

    kind: Literal["int", "float"]
    bits: int
    dynamic: bool
    per: str  # "token", "tensor", "group", …

    def __str__(self) -> str:
        when = "found at run time" if self.dynamic else "stored"
        name = f"INT{self.bits}" if self.kind == "int" else f"FP{self.bits}"
        return f"{name}, one scale a {self.per}, {when}"


class Layer:
    """The stored tensors of one linear layer, by what follows its name and joint ("qweight", "weight_scale")."""

    def __init__(self, name: str, infos: Mapping[str, TensorInfo], read_raw: ReadRaw, *, joint: str = ".") -> None:
        self.name, self._joint = name, joint
        self._infos = infos
        self._read_raw = read_raw

    def __contains__(self, part: str) -> bool:
        return part in self._infos

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(info.nbytes for info in self._infos.values())

    def info(self, part: str) -> TensorInfo:
        """Return one tensor's facts. Raises ArtifactError when the layer lacks it."""
        if part not in self._infos:
            name = f"{self.name}{self._joint}{part}"
            raise ArtifactError("weights", f"tensor {name[:200]!r} is missing: the layer is quantised")
        return self._infos[part]

    def matrix(self, part: str, *dtypes: str) -> tuple[int, int]:
        """Return the shape of a tensor that must have two dimensions and one of the types."""
        info = self.info(part)
        self._expect_dtype(info, dtypes)
        if len(info.shape) != 2 or 0 in info.shape:
            raise ArtifactError("weights", f"tensor {info.name[:200]!r} has the shape {list(info.shape)}, expected two "
                                           "dimensions")
        return info.shape[0], info.shape[1]

    def expect(self, part: str, *shapes: tuple[int, ...], dtypes: tuple[str, ...], why: str) -> tuple[int, ...]:
        """Return the shape of a tensor that must be one of these. Raises ArtifactError with names and shapes."""
        info = self.info(part)
        self._expect_dtype(info, dtypes)
        if info.shape not in shapes:
            allowed = " or ".join(str(list(shape)) for shape in shapes)
            raise ArtifactError("weights", f"tensor {info.name[:200]!r} has the shape {list(info.shape)}, expected "
                                           f"{allowed} ({why})")
        return info.shape

    def _expect_dtype(self, info: TensorInfo, dtypes: tuple[str, ...]) -> None:
        if info.dtype not in dtypes:
            raise ArtifactError("weights", f"tensor {info.name[:200]!r} is stored as {info.dtype}, expected "
                                           f"{' or '.join(dtypes)}")

    def floats(self, part: str) -> Float32:
        """Return a floating tensor's values in float32."""
        info = self.info(part)
        return float_values(self._read_raw(info.name), info.dtype, info.shape)

    def integers(self, part: str) -> npt.NDArray[Any]:
        """Return an integer tensor's values in its own type."""
        info = self.info(part)
        return integer_values(self._read_raw(info.name), info.dtype, info.shape)

    def values(self, part: str) -> npt.NDArray[Any]:
        """Return a tensor's values: whole numbers in their own type, others in float32."""
        return self.integers(part) if self.info(part).dtype in INTEGER_DTYPES else self.floats(part)


class Quantisation(ABC):
    """One way of storing linear layers, set up from a checkpoint's quantization_config.

    label: what pages and logs call it. activations: how it wants inputs rounded, None when it doesn't.
    PARTS: the tensors that can belong to a layer, by what follows its name and JOINT. WEIGHT: what follows its name in
    the name of its values.
    """

    PARTS: ClassVar[tuple[str, ...]]
    JOINT: ClassVar[str] = "."
    WEIGHT: ClassVar[str] = ".weight"
    label: str
    activations: ActivationScheme | None = None

    @abstractmethod
    def layer_of(self, info: TensorInfo) -> str | None:
        """Return the name of the layer whose packed values a stored tensor holds, or None for any other tensor."""

    @abstractmethod
    def excludes(self, module: str) -> bool:
        """Say whether the config leaves this module as it is."""

    @abstractmethod
    def shape(self, layer: Layer) -> tuple[int, ...]:
        """Check the layer's tensors against the config and each other; return the shape of the values, [out, in].

        Raises ArtifactError with the tensor's name, its shape and the expected one.
        """

    @abstractmethod
    def dequantise(self, layer: Layer) -> Float32:
        """Return the values of a layer that `shape` has accepted. [out, in]"""


def whole(config: dict[str, Any], *keys: str, file: str, default: int | None = None) -> int:
    """Return a whole number under the first key that is there. Raises ArtifactError."""
    for key in keys:
        if (value := config.get(key)) is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= 2**20:
                raise ArtifactError(file, f"quantization_config: {key} is {str(value)[:40]!r}, not a whole number")
            return value
    if default is None:
        raise ArtifactError(file, f"quantization_config: {keys[0]} is missing")
    return default


def group_count(inputs: int, group_size: int, layer: str) -> int:
    """Return how many groups of inputs there are; no format has a short one, so they must divide."""
    if inputs % group_size:
        raise ArtifactError("weights", f"layer {layer[:200]!r} has {inputs:,} inputs, which groups of {group_size:,} "
                                       "do not divide")
    return inputs // group_size
