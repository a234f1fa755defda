"""Reads safetensors files and sharded sets of them: every header claim is checked against the file before use.

Format: https://github.com/huggingface/safetensors#format
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import parse_object, read_object
from inference.artifacts.mapping import map_file

MAX_HEADER_BYTES = 100_000_000
MAX_HEADER_VALUES = 1_500_000  # some 200,000 tensors, more than any shard has; a full header would take gigabytes
MAX_INDEX_BYTES = 100_000_000
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class SafetensorsEntry:
    """One tensor of a file: its type, its shape (row-major) and its bytes [start, stop) in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """One mapped safetensors file whose header has been checked. Raises ArtifactError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = map_file(path)
        self.entries = _read_entries(self._data, path.name)

    def read_raw(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the tensor's bytes as a read-only view on the map. [nbytes]"""
        entry = self.entries[name]
        return np.frombuffer(self._data, np.uint8, entry.stop - entry.start, entry.start)


def _read_entries(data: Any, file: str) -> dict[str, SafetensorsEntry]:
    """Parse and check the header of a mapped file: 8 bytes of length, JSON, then the tensors without gaps."""
    # The length of a true header may begin with the same bytes, but its JSON follows.
    if (data[:2] == b"PK" or data[:1] == b"\x80") and data[8:9] != b"{":
        raise ArtifactError(file, "is a pickle or a zip archive, not safetensors; pickles can run code and are refused")
    size = len(data)
    if size < 8:
        raise ArtifactError(file, "is too short to be a safetensors file")
    (length,) = struct.unpack_from("<Q", data)
    if length > size - 8:
        raise ArtifactError(file, f"the header claims {length:,} bytes but the file has {size:,}")
    if length > MAX_HEADER_BYTES:
        raise ArtifactError(file, f"the header claims {length:,} bytes, more than the {MAX_HEADER_BYTES:,} allowed")
    text = data[8 : 8 + length]
    if (values := text.count(b",")) > MAX_HEADER_VALUES:
        raise ArtifactError(file, f"the header lists {values:,} values, more than the {MAX_HEADER_VALUES:,} allowed")
    header = parse_object(text, file=file)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ArtifactError(file, "__metadata__ is not a map of strings")
    entries = {name: _entry(name, value, 8 + length, file) for name, value in header.items()}
    _check_contiguous(entries, 8 + length, size, file)
    return entries


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _entry(name: str, value: Any, base: int, file: str) -> SafetensorsEntry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ArtifactError(file, f"tensor {name[:100]!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise ArtifactError(file, f"tensor {name[:100]!r} has the unknown dtype {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or len(shape) > 32 or not all(map(_whole, shape)):
        raise ArtifactError(file, f"tensor {name[:100]!r} has a shape that is not a short list of whole numbers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)) or offsets[0] > offsets[1]:
        raise ArtifactError(file, f"tensor {name[:100]!r} has data_offsets that are not two rising whole numbers")
    expected = math.prod(shape) * DTYPE_BYTES[dtype]
    if offsets[1] - offsets[0] != expected:
        raise ArtifactError(file, f"tensor {name[:100]!r} of {dtype} {shape} takes {expected:,} bytes "
                                  f"but data_offsets give it {offsets[1] - offsets[0]:,}")
    return SafetensorsEntry(dtype, tuple(shape), base + offsets[0], base + offsets[1])


def _check_contiguous(entries: dict[str, SafetensorsEntry], base: int, size: int, file: str) -> None:
    position = base
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.stop > size:
            raise ArtifactError(file, f"tensor {name[:100]!r} ends at byte {entry.stop:,} "
                                      f"but the file has {size:,}: it is cut short")
        if entry.start != position:
            word = "overlaps the tensor before it" if entry.start < position else "leaves a gap before it"
            raise ArtifactError(file, f"tensor {name[:100]!r} {word}")
        position = entry.stop
    if position != size:
        raise ArtifactError(file, f"{size - position:,} bytes follow the last tensor")


def open_safetensors(folder: Path) -> dict[str, SafetensorsFile]:
    """Open the safetensors of a folder, by its index or as the only file: {tensor name: its file}.

    Raises ArtifactError for a shard missing from the folder or from the index, and for tensors that index and shards
    do not agree on.
    """
    present = sorted(path.name for path in folder.glob("*.safetensors"))
    if (folder / INDEX_NAME).is_file():
        return _open_sharded(folder, present)
    if not present:
        raise ArtifactError(folder.name, "holds no safetensors and no GGUF weights")
    if len(present) > 1:
        raise ArtifactError(folder.name, f"holds {len(present)} safetensors files but no {INDEX_NAME}")
    file = SafetensorsFile(folder / present[0])
    return dict.fromkeys(file.entries, file)


def _open_sharded(folder: Path, present: list[str]) -> dict[str, SafetensorsFile]:
    weight_map = read_object(folder / INDEX_NAME, limit=MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ArtifactError(INDEX_NAME, "has no weight_map")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise ArtifactError(INDEX_NAME, f"names the shard {str(shard)[:100]!r} for tensor {name[:100]!r}, "
                                            "which is not a plain .safetensors file name")
    wanted = sorted(set(weight_map.values()))
    if missing := [shard for shard in wanted if shard not in present]:
        raise ArtifactError(missing[0], f"is named by {INDEX_NAME} but missing")
    if extra := [shard for shard in present if shard not in wanted]:
        raise ArtifactError(extra[0], f"is not named by {INDEX_NAME}")
    files = {shard: SafetensorsFile(folder / shard) for shard in wanted}
    for name, shard in weight_map.items():
        if name not in files[shard].entries:
            raise ArtifactError(shard, f"lacks tensor {name[:100]!r} that {INDEX_NAME} promises")
    for shard, file in files.items():
        for name in file.entries:
            if weight_map.get(name) != shard:
                raise ArtifactError(shard, f"holds tensor {name[:100]!r} that {INDEX_NAME} does not place there")
    return {name: files[shard] for name, shard in weight_map.items()}
