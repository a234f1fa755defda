"""gpt-oss' 4-bit experts against transformers' own dequantisation, and in a whole model."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from inference.artifacts.check import check_decoder_weights
from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from tests.inference.families.cases import CASES, write_tiny_decoder

SETTINGS = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                "model.embed_tokens", "lm_head"]}  # fmt: skip
STACKS = ("gate_up_proj", "down_proj")


def _write_packed(folder: Path) -> dict[str, torch.Tensor]:
    """Write a tiny gpt_oss whose stacks of experts are random MXFP4, and return what these stand for."""
    case = next(case for case in CASES.values() if case["model_type"] == "gpt_oss")
    write_tiny_decoder(folder, **case)
    weights, meant = load_file(folder / "model.safetensors"), {}
    generator = torch.Generator().manual_seed(1)
    for name in [name for name in weights if name.endswith(STACKS)]:
        experts, inputs, outputs = weights.pop(name).shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(118, 124, blocks.shape[:3], dtype=torch.uint8, generator=generator)
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        meant[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": SETTINGS}))
    return meant


def test_stacks_have_the_values_that_transformers_gives_them(tmp_path: Path) -> None:
    meant = _write_packed(tmp_path)
    source = ModelSource.open(tmp_path)
    check_decoder_weights(source, source.decoder_spec())
    assert len(meant) == 6
    for name, values in meant.items():
        assert source.tensors[name].dtype == "MXFP4"
        np.testing.assert_array_equal(source.read_float32(name), values.numpy())
    assert source.conversions("int8") == ("6 tensors stored as MXFP4 run as int8",)


def test_scales_that_do_not_fit_the_blocks_are_refused(tmp_path: Path) -> None:
    _write_packed(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.experts.down_proj_scales"
    for changed, reason in (({key: value for key, value in weights.items() if key != name}, f"{name!r} is missing"),
                            (weights | {name: weights[name][:, 1:].contiguous()}, f"{name!r} has the shape")):
        save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ArtifactError, match=re.escape(reason)):
            ModelSource.open(tmp_path)
