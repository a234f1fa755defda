"""GGUF files of every family and of every type of tensor against transformers' own readers."""

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers.integrations.gguf.dequant import dequantize

from inference.artifacts.check import check_decoder_weights
from inference.artifacts.gguf import can_dequantise, dequantise
from inference.artifacts.source import FolderSource, ModelSource
from tests.inference.artifacts.gguf_files import CONFIGS, write_family

TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_family_reads_back_as_the_checkpoint_it_was_made_from(kind: str, tmp_path: Path) -> None:
    model = write_family(tmp_path / "m.gguf", kind)
    source = ModelSource.open(tmp_path / "m.gguf")
    spec = source.decoder_spec()
    check_decoder_weights(source, spec)
    theirs = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    assert set(theirs) - set(source.tensors) <= {"lm_head.weight"}
    for name in source.tensors:
        np.testing.assert_allclose(source.read_float32(name), theirs[name], rtol=1e-6, atol=1e-6, err_msg=name)
    (tmp_path / "folder").mkdir()
    model.save_pretrained(tmp_path / "folder")
    theirs_spec = FolderSource(tmp_path / "folder").decoder_spec()
    assert replace(spec, rms_norm_eps=1e-6) == theirs_spec  # float32 in the file


@pytest.mark.parametrize("kind", TYPES)
def test_a_quantised_type_stands_for_the_numbers_that_transformers_reads(kind: str) -> None:
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    rows, blocks = 8, 4
    raw = np.random.default_rng(0).integers(0, 256, (rows, blocks, block_bytes), dtype=np.uint8)
    for place in _float16_places(kind):  # scales: random bytes could be infinite
        raw[..., place : place + 2] = np.array([0.01], np.float16).view(np.uint8)
    raw = raw.reshape(rows, -1)
    assert can_dequantise(kind)
    have = dequantise(raw.reshape(-1), kind, (rows, blocks * block))
    if kind in ("Q5_0", "Q5_1"):  # transformers leaves them out
        want = np.concatenate([_q5_row(block, kind) for block in raw.reshape(-1, block_bytes)])
    else:
        want = dequantize(torch.from_numpy(raw).reshape(-1), gguf.GGMLQuantizationType[kind].value).numpy()
    np.testing.assert_allclose(have.reshape(-1), want, rtol=1e-3, atol=1e-6)


def _q5_row(block: np.ndarray, kind: str) -> np.ndarray:
    """Return the 32 numbers of a block, as ggml's dequantize_row_q5_0 and dequantize_row_q5_1 say."""
    scales, rest = (block[:2], block[2:]) if kind == "Q5_0" else (block[:4], block[4:])
    scale, *least = scales.view(np.float16).astype(np.float32)
    high, low = int(rest[:4].view("<u4")[0]), rest[4:].astype(int)
    first = [low[j] & 15 | high >> j << 4 & 16 for j in range(16)]
    second = [low[j] >> 4 | high >> j + 12 & 16 for j in range(16)]
    numbers = np.array(first + second, np.float32)
    return scale * (numbers - 16) if kind == "Q5_0" else scale * numbers + least[0]


def _float16_places(kind: str) -> tuple[int, ...]:
    """Return where a block's float16 scales begin. Source: the structs of ggml-common.h."""
    return {"Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,),
            "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind]


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_plain_types_are_read_exactly(kind: str) -> None:
    values = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
    stored = torch.from_numpy(values).to(dtype)
    raw = stored.view(torch.uint8).numpy().reshape(-1)
    assert np.array_equal(dequantise(raw, kind, (4, 32)), stored.float().numpy())
