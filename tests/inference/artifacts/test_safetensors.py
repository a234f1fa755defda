"""The safetensors reader against the safetensors library, and against headers that lie."""

import json
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from inference.artifacts.errors import ArtifactError
from inference.artifacts.safetensors import INDEX_NAME, SafetensorsFile, open_safetensors

ARRAYS = {
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.linspace(-1, 1, 7, dtype=np.float16),
    "ids": np.arange(5, dtype=np.int64),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(3.5, np.float32),
}


def with_header(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def tensor(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_reads_what_the_library_wrote(tmp_path: Path) -> None:
    save_file(ARRAYS, tmp_path / "a.safetensors", metadata={"format": "np"})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert set(file.entries) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert file.entries[name].shape == array.shape
        assert file.read_raw(name).tobytes() == array.tobytes()


HOSTILE: dict[str, tuple[Any, bytes, str]] = {
    "not JSON": (b"{", b"", "not valid JSON"),
    "not an object": (b"[]", b"", "not a JSON object"),
    "deep nesting": (b'{"a":' + b"[" * 100_000, b"", "not valid JSON"),
    "NaN": (b'{"a": NaN}', b"", "NaN is not a JSON number"),
    "duplicate key": (b'{"a":' + json.dumps(tensor()).encode() + b',"a":' + json.dumps(tensor()).encode() + b"}",
                      bytes(8), "'a' appears twice"),
    "overlap": ({"a": tensor(), "b": tensor(offsets=(4, 12))}, bytes(12), "overlaps"),
    "same bytes twice": ({"a": tensor(), "b": tensor()}, bytes(8), "overlaps"),
    "gap": ({"a": tensor(), "b": tensor(offsets=(12, 20))}, bytes(20), "gap"),
    "gap at the start": ({"a": tensor(offsets=(8, 16))}, bytes(16), "gap"),
    "short file": ({"a": tensor()}, bytes(7), "cut short"),
    "bytes left over": ({"a": tensor()}, bytes(9), "1 bytes follow"),
    "shape and bytes differ": ({"a": tensor(shape=(3,))}, bytes(8), "takes 12 bytes"),
    "huge shape": ({"a": tensor(shape=(2**40, 2**40))}, bytes(8), "takes"),
    "shape beyond 64 bits": ({"a": tensor(shape=(2**63,))}, bytes(8), "whole numbers"),
    "negative shape": ({"a": tensor(shape=(-2,))}, bytes(8), "whole numbers"),
    "text shape": ({"a": tensor(shape="2")}, bytes(8), "whole numbers"),
    "bool shape": ({"a": tensor(shape=(True, True))}, bytes(8), "whole numbers"),
    "falling offsets": ({"a": tensor(offsets=(8, 0))}, bytes(8), "rising"),
    "huge offsets": ({"a": tensor(offsets=(0, 2**60))}, bytes(8), "takes 8 bytes"),
    "unknown dtype": ({"a": tensor(dtype="Q9")}, bytes(8), "unknown dtype 'Q9'"),
    "dtype list": ({"a": tensor(dtype=["F32"])}, bytes(8), "unknown dtype"),
    "extra field": ({"a": tensor() | {"code": 1}}, bytes(8), "not described"),
    "odd metadata": ({"__metadata__": {"a": 1}, "a": tensor()}, bytes(8), "__metadata__"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_refuses_a_header_that_lies(case: str, tmp_path: Path) -> None:
    header, data, words = HOSTILE[case]
    path = with_header(tmp_path / "x.safetensors", header, data)
    with pytest.raises(ArtifactError, match=words) as refusal:
        SafetensorsFile(path)
    assert str(refusal.value).startswith("x.safetensors: ")


@pytest.mark.parametrize(("content", "words"), [
    (b"", "is empty"),
    (b"abc", "too short"),
    (struct.pack("<Q", 2**60) + b"{}", r"claims 1,152,921,504,606,846,976 bytes"),
    (b"PK\x03\x04" + bytes(100), "pickle or a zip"),
    (b"\x80\x04\x95" + bytes(100), "pickle or a zip"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
])  # fmt: skip
def test_refuses_what_is_not_safetensors(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=words):
        SafetensorsFile(path)


def test_a_header_length_that_looks_like_a_pickle_is_none(tmp_path: Path) -> None:
    # Lengths such as 640 = 0x0280 are stored as the bytes that a pickle begins with.
    header = json.dumps({"a": tensor()}).encode()
    for length in (0x80, 0x180, 0x280, 0x380, 0x480, 0x580):
        path = with_header(tmp_path / "x.safetensors", header.ljust(length), bytes(8))
        assert set(SafetensorsFile(path).entries) == {"a"}


def test_refuses_a_header_over_100_mb_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 150_000_000) + b"{")
        file.truncate(200_000_000)  # sparse
    before = time.process_time()
    with pytest.raises(ArtifactError, match="more than the 100,000,000 allowed"):
        SafetensorsFile(path)
    assert time.process_time() - before < 0.1


@settings(max_examples=300, deadline=None)
@given(position=st.integers(0, 400), value=st.integers(0, 255))
def test_any_changed_byte_is_read_or_refused(
    position: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(save({name: ARRAYS[name] for name in ("weights", "ids")}))
    content[position % len(content)] = value
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    path.write_bytes(content)
    try:
        file = SafetensorsFile(path)
        assert all(len(file.read_raw(name)) == entry.stop - entry.start for name, entry in file.entries.items())
    except ArtifactError:
        pass


def write_shards(folder: Path, weight_map: dict[str, Any]) -> None:
    save_file({"a": ARRAYS["weights"]}, folder / "model-1.safetensors")
    save_file({"b": ARRAYS["ids"]}, folder / "model-2.safetensors")
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_reads_shards_by_the_index(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    files = open_safetensors(tmp_path)
    assert files["b"].read_raw("b").tobytes() == ARRAYS["ids"].tobytes()


@pytest.mark.parametrize(("weight_map", "words"), [
    ({"a": "model-1.safetensors", "b": "model-3.safetensors"}, "model-3.safetensors: is named by .* but missing"),
    ({"a": "model-1.safetensors"}, "model-2.safetensors: is not named by"),
    ({"a": "model-2.safetensors", "b": "model-1.safetensors"}, "lacks tensor 'a'"),
    ({"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}, "lacks tensor 'c'"),
    ({"a": "../model-1.safetensors", "b": "model-2.safetensors"}, "not a plain .safetensors file name"),
    ({"a": 1}, "not a plain .safetensors file name"),
    ({}, "has no weight_map"),
])  # fmt: skip
def test_refuses_an_index_that_does_not_match_its_shards(
    weight_map: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_shards(tmp_path, weight_map)
    with pytest.raises(ArtifactError, match=words):
        open_safetensors(tmp_path)


def test_refuses_a_tensor_that_the_index_leaves_out(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    save_file({"a": ARRAYS["weights"], "hidden": ARRAYS["ids"]}, tmp_path / "model-1.safetensors")
    with pytest.raises(ArtifactError, match="holds tensor 'hidden'"):
        open_safetensors(tmp_path)


def test_refuses_several_files_without_an_index(tmp_path: Path) -> None:
    write_shards(tmp_path, {})
    (tmp_path / INDEX_NAME).unlink()
    with pytest.raises(ArtifactError, match="2 safetensors files but no"):
        open_safetensors(tmp_path)
