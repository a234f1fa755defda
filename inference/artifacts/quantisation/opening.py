"""Finds the quantised layers of a checkpoint: picks the reader that its config names, checks config against tensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import read_object_if_present
from inference.artifacts.quantisation.awq import Awq
from inference.artifacts.quantisation.bitsandbytes import bits_and_bytes
from inference.artifacts.quantisation.compressed import CompressedTensors
from inference.artifacts.quantisation.fp8 import Fp8
from inference.artifacts.quantisation.gptq import Gptq
from inference.artifacts.quantisation.mxfp4 import Mxfp4
from inference.artifacts.quantisation.scheme import Float32, Layer, Quantisation, ReadRaw
from inference.artifacts.tensors import FLOAT_DTYPES, TensorInfo


class _Reader(Protocol):
    def __call__(self, config: dict[str, Any], *, file: str) -> Quantisation: ...


READERS: dict[str, _Reader] = {
    "awq": Awq, "gptq": Gptq, "fp8": Fp8, "fbgemm_fp8": Fp8, "compressed-tensors": CompressedTensors,
    "bitsandbytes": bits_and_bytes, "mxfp4": Mxfp4,
}  # fmt: skip
OLD_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}  # AutoGPTQ and AutoAWQ before transformers
CACHE_SCALES = (".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".prob_scale", ".k_zero_point", ".v_zero_point")
PACKED_ENDINGS = (".qweight", ".weight_packed", ".weight_scale_inv", ".SCB", ".absmax")


def quantisation_of(config: dict[str, Any], folder: Path) -> Quantisation | None:
    """Return the reader for a folder's weights, or None when they aren't quantised. Raises ArtifactError."""
    settings, file = config.get("quantization_config") or config.get("compression_config"), "config.json"
    method = None
    if settings is None:
        file = next((name for name in OLD_FILES if (folder / name).is_file()), "")
        if not file:
            return None
        settings, method = read_object_if_present(folder / file), OLD_FILES[file]
    if not isinstance(settings, dict):
        raise ArtifactError(file, "quantization_config is not an object")
    method = settings.get("quant_method", method)
    if not isinstance(method, str) or method not in READERS:
        raise ArtifactError(file, f"quantization_config: quant_method {str(method)[:40]!r} is not supported (known: "
                                  f"{', '.join(READERS)})")
    return READERS[method](settings, file=file)


class QuantisedLayers:
    """The quantised layers among a checkpoint's tensors.

    tensors: every tensor of the model as the decoder sees it: a quantised layer is its one weight. layers: by the name
    of that weight. Raises ArtifactError when config and tensors contradict each other.
    """

    def __init__(self, stored: Mapping[str, TensorInfo], quantisation: Quantisation, read_raw: ReadRaw) -> None:
        self.quantisation = quantisation
        modules = {module for info in stored.values() if (module := quantisation.layer_of(info)) is not None}
        if not modules:
            raise ArtifactError("config.json", f"quantization_config says {quantisation.label}, but no tensor is "
                                               "stored that way")
        parts: dict[str, dict[str, TensorInfo]] = {module: {} for module in modules}
        for part in quantisation.PARTS:
            for module in modules:
                if info := stored.get(f"{module}{quantisation.JOINT}{part}"):
                    parts[module][part] = info
        swallowed = {info.name for infos in parts.values() for info in infos.values()}
        self.layers = {f"{module}{quantisation.WEIGHT}": Layer(module, infos, read_raw, joint=quantisation.JOINT)
                       for module, infos in parts.items()}
        self.tensors = {name: info for name, info in stored.items()
                        if name not in swallowed and not name.endswith(CACHE_SCALES)}
        self._check_plain(modules)
        for name, layer in sorted(self.layers.items()):
            if quantisation.excludes(layer.name):
                raise ArtifactError("weights", f"layer {layer.name[:200]!r} is stored as {quantisation.label}, though "
                                               "quantization_config leaves it out")
            self.tensors[name] = TensorInfo(name, quantisation.label, quantisation.shape(layer), layer.nbytes,
                                            quantised=True)

    def _check_plain(self, modules: set[str]) -> None:
        """Refuse a layer that is stored as it is though layers of the same name are quantised and it isn't left out."""
        kinds = {module.rpartition(".")[2] for module in modules}
        for name, info in self.tensors.items():
            module, _, part = name.rpartition(".")
            if part == "weight" and len(info.shape) == 2 and info.dtype in FLOAT_DTYPES \
                    and module.rpartition(".")[2] in kinds and not self.quantisation.excludes(module):
                raise ArtifactError("weights", f"tensor {name[:200]!r} of shape {list(info.shape)} is stored as "
                                               f"{info.dtype}, though quantization_config makes it "
                                               f"{self.quantisation.label}")

    def dequantise(self, name: str) -> Float32:
        """Return the values of a quantised layer's weight, in float32."""
        return self.quantisation.dequantise(self.layers[name])


def refuse_packed(stored: Mapping[str, TensorInfo]) -> None:
    """Raise ArtifactError when tensors look quantised though no config says how."""
    for name, info in stored.items():
        if name.endswith(PACKED_ENDINGS):
            raise ArtifactError("config.json", f"has no quantization_config, but tensor {name[:200]!r} of {info.dtype} "
                                               f"{list(info.shape)} is part of a quantised layer")
