"""Reads GGUF files: metadata and tensor table, each count, length and offset checked against the file before use.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The reader of the gguf package needs seconds for a
vocabulary of 49,000 tokens and trusts the counts it reads; its table of block sizes and its dequantisation are used.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.mapping import map_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_FIELDS = 100_000
MAX_TENSORS = 1_000_000
MAX_ARRAY_ITEMS = 1_000_000  # four times the largest vocabulary that is published
MAX_NAME_BYTES = 65_535
MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32

STRING, ARRAY = 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: its ggml type ("Q4_1"), its shape (row-major, numpy order) and its bytes [start, stop)."""

    type: str
    shape: tuple[int, ...]
    start: int
    stop: int


class GgufFile:
    """One mapped GGUF file. metadata: scalars, strings, lists by key. tensors: by GGUF name. Raises ArtifactError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = map_file(path)
        cursor = _Cursor(self._data, path.name)
        version, tensor_count, field_count = _read_preamble(cursor)
        self.version = version
        self.metadata = _read_metadata(cursor, field_count)
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or not 8 <= alignment <= 2**20 or alignment & (alignment - 1):
            raise ArtifactError(path.name, f"general.alignment is {alignment!r}, not a power of two of at least 8")
        self.tensors = _read_tensors(cursor, tensor_count, alignment)

    def read_raw(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the tensor's bytes as a read-only view on the map. [nbytes]"""
        tensor = self.tensors[name]
        return np.frombuffer(self._data, np.uint8, tensor.stop - tensor.start, tensor.start)


def dequantise(raw: npt.NDArray[np.uint8], type_name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return float32 values [shape] of a tensor's bytes. Raises ArtifactError for a type without a dequantisation."""
    if type_name == "F64":  # the gguf package leaves this one out
        return raw.view("<f8").astype(np.float32).reshape(shape)
    kind = gguf.GGMLQuantizationType[type_name]
    try:
        values: npt.NDArray[np.float32] = gguf.quants.dequantize(raw.reshape(math.prod(shape[:-1]), -1), kind)
    except NotImplementedError:
        raise ArtifactError("GGUF", f"weights of type {type_name} can't be read") from None
    return values.reshape(shape)


def can_dequantise(type_name: str) -> bool:
    """Say whether weights of this ggml type can be read, by reading one block of zeros."""
    if type_name not in gguf.GGMLQuantizationType.__members__:
        return False
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    try:
        dequantise(np.zeros(block_bytes, np.uint8), type_name, (block,))
    except ArtifactError:
        return False
    return True


class _Cursor:
    """Reads forward through the header; a read past the end of the file raises ArtifactError."""

    def __init__(self, data: Any, file: str) -> None:
        self.data = data
        self.file = file
        self.size = len(data)
        self.position = 0

    def need(self, nbytes: int, what: str) -> None:
        if nbytes > self.size - self.position:
            raise ArtifactError(self.file, f"{what} at byte {self.position:,} goes past the end of the file")

    def unpack(self, form: str, what: str) -> tuple[Any, ...]:
        nbytes = struct.calcsize(form)
        self.need(nbytes, what)
        values = struct.unpack_from(form, self.data, self.position)
        self.position += nbytes
        return values

    def string(self, what: str, limit: int | None = None) -> str:
        (length,) = self.unpack("<Q", what)
        if limit is not None and length > limit:
            raise ArtifactError(self.file, f"{what} claims {length:,} bytes, more than the {limit:,} allowed")
        self.need(length, what)
        start = self.position
        self.position += length
        try:
            return bytes(self.data[start : self.position]).decode("utf-8")
        except UnicodeDecodeError:
            raise ArtifactError(self.file, f"{what} is not UTF-8") from None


def _read_preamble(cursor: _Cursor) -> tuple[int, int, int]:
    if cursor.data[:4] != MAGIC:
        raise ArtifactError(cursor.file, "does not begin with GGUF, so it is not a GGUF file")
    cursor.position = 4
    version, tensors, fields = cursor.unpack("<IQQ", "the header")
    if version not in VERSIONS:
        if version & 0xFFFF == 0:
            raise ArtifactError(cursor.file, "is a big-endian GGUF file, which is not supported")
        raise ArtifactError(cursor.file, f"is GGUF version {version}; versions 2 and 3 are supported")
    if fields > MAX_FIELDS:
        raise ArtifactError(cursor.file, f"claims {fields:,} metadata fields, more than the {MAX_FIELDS:,} allowed")
    if tensors > MAX_TENSORS:
        raise ArtifactError(cursor.file, f"claims {tensors:,} tensors, more than the {MAX_TENSORS:,} allowed")
    return version, tensors, fields


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string("a metadata key", MAX_NAME_BYTES)
        if key in metadata:
            raise ArtifactError(cursor.file, f"the key {key[:100]!r} appears twice")
        (kind,) = cursor.unpack("<I", f"the type of {key[:100]!r}")
        metadata[key] = _read_value(cursor, kind, key[:100])
    return metadata


def _read_value(cursor: _Cursor, kind: int, key: str) -> Any:
    if form := SCALARS.get(kind):
        return cursor.unpack(form, f"the value of {key!r}")[0]
    if kind == STRING:
        return cursor.string(f"the value of {key!r}")
    if kind != ARRAY:
        raise ArtifactError(cursor.file, f"{key!r} has the unknown type {kind}")
    item_kind, count = cursor.unpack("<IQ", f"the array {key!r}")
    if count > MAX_ARRAY_ITEMS:
        raise ArtifactError(cursor.file, f"the array {key!r} claims {count:,} items, "
                                         f"more than the {MAX_ARRAY_ITEMS:,} allowed")
    if item_kind == STRING:
        cursor.need(8 * count, f"the array {key!r}")
        return [cursor.string(f"an item of {key!r}") for _ in range(count)]
    if form := SCALARS.get(item_kind):
        return list(cursor.unpack(f"<{count}{form[1]}", f"the array {key!r}"))
    raise ArtifactError(cursor.file, f"the array {key!r} has items of the unsupported type {item_kind}")


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, GgufTensor]:
    entries: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    for _ in range(count):
        name = cursor.string("a tensor name", MAX_NAME_BYTES)
        if name in entries:
            raise ArtifactError(cursor.file, f"tensor {name[:100]!r} appears twice")
        entries[name] = _read_tensor(cursor, name[:100], alignment)
    base = -(-cursor.position // alignment) * alignment
    tensors = {}
    for name, (kind, shape, offset, nbytes) in entries.items():
        if base + offset + nbytes > cursor.size:
            raise ArtifactError(cursor.file, f"tensor {name[:100]!r} ends at byte {base + offset + nbytes:,} "
                                             f"but the file has {cursor.size:,}: it is cut short")
        tensors[name] = GgufTensor(kind, shape, base + offset, base + offset + nbytes)
    _check_no_overlap(tensors, cursor.file)
    return tensors


def _read_tensor(cursor: _Cursor, name: str, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
    """Read one row of the tensor table: type, shape, offset in the data section, bytes."""
    (dims,) = cursor.unpack("<I", f"tensor {name!r}")
    if not 1 <= dims <= MAX_DIMS:
        raise ArtifactError(cursor.file, f"tensor {name!r} claims {dims:,} dimensions; 1 to {MAX_DIMS} are allowed")
    shape = tuple(reversed(cursor.unpack(f"<{dims}Q", f"tensor {name!r}")))
    kind, offset = cursor.unpack("<IQ", f"tensor {name!r}")
    if 0 in shape or math.prod(shape) >= 2**63:
        raise ArtifactError(cursor.file, f"tensor {name!r} has the impossible shape {list(shape)}")
    try:
        quantisation = gguf.GGMLQuantizationType(kind)
    except ValueError:
        raise ArtifactError(cursor.file, f"tensor {name!r} has the unknown type {kind}") from None
    block, block_bytes = gguf.GGML_QUANT_SIZES[quantisation]
    if shape[-1] % block:
        raise ArtifactError(cursor.file, f"tensor {name!r} has rows of {shape[-1]:,} values, "
                                         f"not a multiple of the {block} in a block of {quantisation.name}")
    if offset % alignment:
        raise ArtifactError(cursor.file, f"tensor {name!r} begins at {offset:,}, not a multiple of {alignment}")
    return quantisation.name, shape, offset, math.prod(shape) // block * block_bytes


def _check_no_overlap(tensors: dict[str, GgufTensor], file: str) -> None:
    position = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
        if tensor.start < position:
            raise ArtifactError(file, f"tensor {name[:100]!r} overlaps the tensor before it")
        position = tensor.stop
