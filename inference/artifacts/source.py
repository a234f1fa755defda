"""Opens a model's weights and configuration, whatever they are stored as, under the names that transformers uses."""

from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.artifacts.config import decoder_spec_from_config
from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile, dequantise
from inference.artifacts.gguf_config import architecture_of, config_from_gguf, generation_config_from_gguf
from inference.artifacts.jsonfile import read_object, read_object_if_present
from inference.artifacts.names import CONFIGURATION_TENSORS, half_split_rows, rotary_heads
from inference.artifacts.quantisation.opening import QuantisedLayers, quantisation_of, refuse_packed
from inference.artifacts.quantisation.scheme import ActivationScheme
from inference.artifacts.safetensors import open_safetensors
from inference.artifacts.tensors import FLOAT_DTYPES, TensorInfo, float_values
from inference.decoder_spec import DecoderSpec

CONFIG_NAME = "config.json"
GENERATION_CONFIG_NAME = "generation_config.json"


class ModelSource(ABC):
    """The weights of one model and what its configuration says.

    tensors: by Hugging Face name; a quantised layer is one tensor, whatever it is stored in. config, generation_config:
    Hugging Face style, derived for a bare GGUF file. activations: how a quantised checkpoint wants inputs rounded.
    """

    tensors: dict[str, TensorInfo]
    config: dict[str, Any]
    generation_config: dict[str, Any]
    activations: ActivationScheme | None = None

    @staticmethod
    def open(path: Path) -> "ModelSource":
        """Open a folder with config.json and safetensors, a .gguf file, or a folder with one .gguf file.

        In a folder with a .gguf file, a config.json and generation_config.json beside it win over the metadata, and
        the weights are the file's. Raises ArtifactError.
        """
        if path.is_file():
            return GgufSource(path)
        if not path.is_dir():
            raise ArtifactError(path.name, "does not exist")
        ggufs = sorted(path.glob("*.gguf"))
        if not ggufs:
            return FolderSource(path)
        if len(ggufs) > 1 or any(path.glob("*.safetensors")):
            raise ArtifactError(path.name, "holds more than one set of weights: give one .gguf file or safetensors")
        return GgufSource(ggufs[0], folder=path)

    def decoder_spec(self) -> DecoderSpec:
        """Return the decoder's shape. Raises ArtifactError when the architecture is unknown or a value impossible."""
        return decoder_spec_from_config(self.config, self.generation_config)

    def conversions(self, mode: str) -> tuple[str, ...]:
        """Say, a line each, which stored formats an engine that runs in this mode converts, and what it leaves out."""
        kinds = Counter(info.dtype for info in self.tensors.values() if info.dtype not in FLOAT_DTYPES)
        lines = [f"{count} tensors stored as {kind} run as {mode}" for kind, count in kinds.items() if kind != mode]
        if self.activations is not None:
            lines.append(f"the checkpoint rounds activations ({self.activations}); here they stay in floating point")
        return tuple(lines)

    @abstractmethod
    def read_raw(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the stored bytes [nbytes], rows in Hugging Face order: a view on the file where they lie so.

        Raises ArtifactError for a layer that is stored in several tensors.
        """

    @abstractmethod
    def read_float32(self, name: str) -> npt.NDArray[np.float32]:
        """Return the values [shape], dequantised. Raises ArtifactError for a type that can't be read."""


class FolderSource(ModelSource):
    """A folder in Hugging Face layout with safetensors, single or sharded, plain or quantised."""

    def __init__(self, folder: Path) -> None:
        self.config = read_object(folder / CONFIG_NAME)
        self.generation_config = read_object_if_present(folder / GENERATION_CONFIG_NAME)
        self._files = open_safetensors(folder)
        self.tensors = {}
        for name, file in self._files.items():
            entry = file.entries[name]
            self.tensors[name] = TensorInfo(name, entry.dtype, entry.shape, entry.stop - entry.start)
        self._quantised: QuantisedLayers | None = None
        if (quantisation := quantisation_of(self.config, folder)) is None:
            refuse_packed(self.tensors)
        else:
            self._quantised = QuantisedLayers(self.tensors, quantisation, self._read_stored)
            self.tensors = self._quantised.tensors
            self.activations = quantisation.activations

    def _read_stored(self, name: str) -> npt.NDArray[np.uint8]:
        return self._files[name].read_raw(name)

    def read_raw(self, name: str) -> npt.NDArray[np.uint8]:
        if self.tensors[name].quantised:
            raise ArtifactError("weights", f"tensor {name!r} is stored in several tensors")
        return self._read_stored(name)

    def read_float32(self, name: str) -> npt.NDArray[np.float32]:
        info = self.tensors[name]
        if info.quantised and self._quantised is not None:
            return self._quantised.dequantise(name)
        if info.dtype not in FLOAT_DTYPES:
            raise ArtifactError(self._files[name].path.name, f"tensor {name!r} of type {info.dtype} can't be read")
        return float_values(self._read_stored(name), info.dtype, info.shape)


class GgufSource(ModelSource):
    """One GGUF file; tensors go by their Hugging Face names, with rows and values as transformers has them."""

    def __init__(self, path: Path, *, folder: Path | None = None) -> None:
        self._file = GgufFile(path)
        if isinstance(parts := self._file.metadata.get("split.count"), int) and parts > 1:
            raise ArtifactError(path.name, f"is one of {parts} parts of a model; join them by llama-gguf-split --merge")
        self._architecture = architecture_of(self._file)
        derived = config_from_gguf(self._file)
        beside = {} if folder is None else read_object_if_present(folder / CONFIG_NAME)
        self.config = beside or derived
        generation = {} if folder is None else read_object_if_present(folder / GENERATION_CONFIG_NAME)
        self.generation_config = generation or generation_config_from_gguf(self._file)
        self._heads = (derived["num_attention_heads"], derived["num_key_value_heads"])
        self._gguf_names: dict[str, str] = {}
        self.tensors = {}
        for gguf_name, tensor in self._file.tensors.items():
            if gguf_name in CONFIGURATION_TENSORS:
                continue
            name = self._architecture.hf_name(gguf_name)
            if name is None:
                raise ArtifactError(path.name, f"tensor {gguf_name[:100]!r} is not one of a "
                                               f"{self._architecture.model_type} decoder")
            self._gguf_names[name] = gguf_name
            self.tensors[name] = TensorInfo(name, tensor.type, tensor.shape, tensor.stop - tensor.start)

    def _in_order(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        heads = rotary_heads(name, num_heads=self._heads[0], num_kv_heads=self._heads[1])
        if heads is None or not self._architecture.interleaved:
            return values
        if values.shape[0] % (2 * heads):
            raise ArtifactError(self._file.path.name, f"tensor {name!r} has {values.shape[0]:,} rows, "
                                                      f"which {heads} heads can't share")
        return half_split_rows(values, heads)

    def read_raw(self, name: str) -> npt.NDArray[np.uint8]:
        raw, rows = self._file.read_raw(self._gguf_names[name]), self.tensors[name].shape[0]
        return self._in_order(name, raw.reshape(rows, -1)).reshape(-1)

    def read_float32(self, name: str) -> npt.NDArray[np.float32]:
        info = self.tensors[name]
        values = dequantise(self._file.read_raw(self._gguf_names[name]), info.dtype, info.shape)
        if self._architecture.plus_one and name.endswith("norm.weight"):
            values = values - 1
        return self._in_order(name, values)
