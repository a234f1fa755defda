"""Reads what a plan needs from disk: a config.json, a model's folder or a GGUF file; headers only, never weights."""


import math
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import parse_object, read_object
from inference.planner.gguf_header import read_gguf
from inference.planner.layout import StoredWeights

MAX_HEADER_BYTES = 100_000_000
INTEGERS = frozenset({"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"})
NOT_PARAMETERS = (".rotary_emb.inv_freq",)
HEADS = ("lm_head.weight",)


@dataclass(frozen=True)
class ModelOnDisk:
    """A configuration, and what the weights' headers say when there are weights."""

    config: dict[str, Any]
    stored: StoredWeights | None


def read_model(path: Path) -> ModelOnDisk:
    """Read a config.json (any .json), a folder with one and perhaps weights, or a .gguf file. Raises ArtifactError."""
    if path.is_dir():
        ggufs = sorted(path.glob("*.gguf"))
        if len(ggufs) == 1 and not any(path.glob("*.safetensors")):
            found = read_gguf(ggufs[0])
            config = read_object(path / "config.json") if (path / "config.json").is_file() else found[0]
            return ModelOnDisk(config, found[1])
        config = read_object(path / "config.json")
        return ModelOnDisk(config, _stored_safetensors(path, config))
    with path.open("rb") if path.is_file() else _missing(path) as file:
        magic = file.read(4)
    if magic == b"GGUF":
        return ModelOnDisk(*read_gguf(path))
    return ModelOnDisk(read_object(path), None)


def _missing(path: Path) -> Any:
    raise ArtifactError(path.name, "does not exist")


def _stored_safetensors(folder: Path, config: dict[str, Any]) -> StoredWeights | None:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    tensors: dict[str, tuple[str, int, int]] = {}
    for file in files:
        tensors.update(_tensors(file))
    dtypes = Counter(dtype for dtype, _, _ in tensors.values())
    tied = bool(config.get("tie_word_embeddings"))
    kept = {name: tensor for name, tensor in tensors.items()
            if not (tied and name in HEADS) and not name.endswith(NOT_PARAMETERS)}
    counted = sum(count for dtype, count, _ in kept.values() if dtype not in INTEGERS)
    return StoredWeights(
        nbytes=sum(nbytes for _, _, nbytes in kept.values()), dtypes=", ".join(sorted(dtypes)),
        # Packed weights hide several parameters in one number: the configuration knows how many there are.
        parameters=None if config.get("quantization_config") else counted,
    )


def _tensors(path: Path) -> dict[str, tuple[str, int, int]]:
    """Return dtype, elements and bytes of each tensor of a safetensors file, from its header."""
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 0 < length <= min(MAX_HEADER_BYTES, path.stat().st_size - 8):
            raise ArtifactError(path.name, f"the header claims {length:,} bytes, which can't be")
        header = parse_object(file.read(length), file=path.name)
    header.pop("__metadata__", None)
    try:
        return {name: (str(entry["dtype"]), math.prod(entry["shape"]),
                       entry["data_offsets"][1] - entry["data_offsets"][0]) for name, entry in header.items()}
    except (TypeError, KeyError, IndexError):
        raise ArtifactError(path.name, "has a tensor that isn't described by dtype, shape and data_offsets") from None


