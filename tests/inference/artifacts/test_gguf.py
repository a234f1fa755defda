"""The GGUF reader against the gguf package's own, and against files that lie."""

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile, can_dequantise, dequantise
from tests.tiny_models import write_tiny_gguf


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def field(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + items


def tensor(name: str = "t", *, dims: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file_of(*, fields: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (), data: bytes = b"", version: int = 3,
            field_count: int | None = None, tensor_count: int | None = None) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if tensor_count is None else tensor_count,
                                 len(fields) if field_count is None else field_count)
    head += b"".join(fields) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def test_reads_the_demo_model_as_the_gguf_package_does(demo_chat_path: Path) -> None:
    start = time.process_time()
    ours = GgufFile(demo_chat_path)
    middle = time.process_time()
    theirs = gguf.GGUFReader(demo_chat_path)
    assert (middle - start) * 3 < time.process_time() - middle  # why we have a reader of our own
    keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
    assert list(ours.metadata) == keys
    assert all(ours.metadata[key] == theirs.fields[key].contents() for key in keys)
    assert list(ours.tensors) == [info.name for info in theirs.tensors]
    for info in theirs.tensors:
        tensor = ours.tensors[info.name]
        assert (tensor.type, tensor.start) == (info.tensor_type.name, info.data_offset)
        assert tensor.shape == tuple(reversed(info.shape.tolist()))
        assert tensor.stop - tensor.start == info.n_bytes
    last = theirs.tensors[-1]
    assert ours.read_raw(last.name).tobytes() == last.data.tobytes()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16"])
def test_dequantises_what_the_gguf_package_quantised(kind: str) -> None:
    values = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    read = dequantise(raw.view(np.uint8).reshape(-1), kind, values.shape)
    assert np.abs(read - values).max() < (0.35 if kind[0] == "Q" and kind[1] != "8" else 0.02)


def test_knows_which_types_it_can_read() -> None:
    assert all(can_dequantise(kind) for kind in ("F32", "F16", "BF16", "F64", "Q4_1", "Q6_K", "IQ4_XS", "MXFP4"))
    assert not any(can_dequantise(kind) for kind in ("I32", "Q8_K", "no such type"))


HOSTILE: dict[str, tuple[bytes, str]] = {
    "another format": (b"GGML" + bytes(100), "does not begin with GGUF"),
    "only the magic": (b"GGUF", "past the end"),
    "version 1": (file_of(version=1), "version 1"),
    "version 99": (file_of(version=99), "version 99"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "LFS pointer"),
    "2^60 fields": (file_of(field_count=2**60), "metadata fields"),
    "2^60 tensors": (file_of(tensor_count=2**60), "tensors, more than"),
    "more fields than there are": (file_of(field_count=9), "past the end"),
    "more tensors than there are": (file_of(tensor_count=9), "past the end"),
    "string of 2^60 bytes": (file_of(fields=(text("k") + struct.pack("<IQ", 8, 2**60),)), "past the end"),
    "key of 1 MB": (file_of(fields=(field("k" * 1_000_000, 4, bytes(4)),)), "a metadata key claims"),
    "duplicate key": (file_of(fields=(field("k", 4, bytes(4)), field("k", 4, bytes(4)))), "'k' appears twice"),
    "unknown value type": (file_of(fields=(field("k", 99, bytes(4)),)), "unknown type 99"),
    "array of 2^60": (file_of(fields=(field("k", 9, array(4, 2**60, b"")),)), "claims 1,152,921"),
    "array past the end": (file_of(fields=(field("k", 9, array(4, 1000, bytes(8))),)), "past the end"),
    "strings past the end": (file_of(fields=(field("k", 9, array(8, 1000, bytes(16))),)), "past the end"),
    "nested arrays": (file_of(fields=(field("k", 9, array(9, 1, array(9, 1, b""))),)), "unsupported type 9"),
    "not UTF-8": (file_of(fields=(field("k", 8, struct.pack("<Q", 2) + b"\xff\xfe"),)), "not UTF-8"),
    "alignment 0": (file_of(fields=(field("general.alignment", 4, struct.pack("<I", 0)),)), "general.alignment"),
    "alignment 33": (file_of(fields=(field("general.alignment", 4, struct.pack("<I", 33)),)), "general.alignment"),
    "alignment text": (file_of(fields=(field("general.alignment", 8, text("x")),)), "general.alignment"),
    "five dimensions": (file_of(tensors=(tensor(dims=(2,) * 5),), data=bytes(128)), "claims 5 dimensions"),
    "2^31 dimensions": (file_of(tensors=(text("t") + struct.pack("<I", 2**31),)), "claims 2,147,483,648 dimensions"),
    "no dimensions": (file_of(tensors=(tensor(dims=()),)), "claims 0 dimensions"),
    "empty tensor": (file_of(tensors=(tensor(dims=(0, 8)),)), "impossible shape"),
    "overflowing shape": (file_of(tensors=(tensor(dims=(2**63, 2**63)),)), "impossible shape"),
    "unknown tensor type": (file_of(tensors=(tensor(kind=200),)), "unknown type 200"),
    "row of half a block": (file_of(tensors=(tensor(dims=(33,), kind=2),), data=bytes(64)), "multiple of the 32"),
    "odd offset": (file_of(tensors=(tensor(offset=4),), data=bytes(64)), "not a multiple of 32"),
    "short data": (file_of(tensors=(tensor(dims=(64,)),), data=bytes(255)), "cut short"),
    "offset far away": (file_of(tensors=(tensor(offset=2**62),), data=bytes(64)), "cut short"),
    "overlapping tensors": (file_of(tensors=(tensor("a", dims=(16,)), tensor("b", dims=(16,), offset=32)),
                                    data=bytes(128)), "overlaps"),
    "tensor twice": (file_of(tensors=(tensor(), tensor()), data=bytes(64)), "'t' appears twice"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_refuses_a_file_that_lies(case: str, tmp_path: Path) -> None:
    content, words = HOSTILE[case]
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=words) as refusal:
        GgufFile(path)
    assert str(refusal.value).startswith("x.gguf: ")


def test_takes_a_file_whose_claims_hold(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    numbers = np.arange(8, dtype=np.float32)
    path.write_bytes(file_of(fields=(field("k", 9, array(6, 2, struct.pack("<2f", 1.5, -2))),), tensors=(tensor(),),
                             data=numbers.tobytes()))
    file = GgufFile(path)
    assert file.metadata == {"k": [1.5, -2.0]}
    assert file.read_raw("t").tobytes() == numbers.tobytes()


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_tiny_gguf(path)
    return path.read_bytes()


@settings(max_examples=300, deadline=None)
@given(position=st.integers(4, 12_000), value=st.binary(min_size=1, max_size=8))
def test_any_changed_bytes_are_read_or_refused(
    position: int, value: bytes, tiny_gguf: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    path.write_bytes(tiny_gguf[:position] + value + tiny_gguf[position + len(value) :])
    try:
        file = GgufFile(path)
        assert all(len(file.read_raw(name)) == info.stop - info.start for name, info in file.tensors.items())
    except ArtifactError:
        pass
