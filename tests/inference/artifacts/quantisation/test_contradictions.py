"""Quantised checkpoints whose config and tensors contradict each other are refused, with names and shapes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inference.artifacts.check import check_decoder_weights
from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from tests.inference.artifacts.quantisation import formats
from tests.inference.artifacts.quantisation.formats import GROUP, Format
from tests.inference.artifacts.quantisation.packed_models import (
    Tensors,
    layers_of,
    save,
    set_quantization_config,
    write_packed,
)

LAYER = "model.layers.0.mlp.down_proj"  # [192, 320]
INT4 = formats.compressed("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP,
                                             "symmetric": False})  # fmt: skip
W8A8 = formats.compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
                          {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True})  # fmt: skip


def opened(folder: Path) -> ModelSource:
    source = ModelSource.open(folder)
    check_decoder_weights(source, source.decoder_spec())
    return source


def refusal(folder: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        opened(folder)
    return str(caught.value)


Change = Callable[[Tensors], None]


def _replace(part: str, value: torch.Tensor) -> Change:
    return lambda stored: stored.update({f"{LAYER}.{part}": value})


def _bytes(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _drop(part: str) -> Change:
    return lambda stored: stored.__delitem__(f"{LAYER}.{part}")


@pytest.mark.parametrize(("form", "change", "words"), [
    (formats.awq(), _replace("scales", torch.zeros(5, 192).half()),
     f"tensor '{LAYER}.scales' has the shape [5, 192], expected [10, 192] (320 inputs in AWQ INT4 (groups of 32))"),
    (formats.awq(), _replace("qzeros", torch.zeros(10, 192, dtype=torch.int32)),
     "has the shape [10, 192], expected [10, 24]"),
    (formats.awq(), _replace("qweight", torch.zeros(320, 24)), "qweight' is stored as F32, expected I32"),
    (formats.awq(), _drop("qzeros"), f"tensor '{LAYER}.qzeros' is missing: the layer is quantised"),
    (formats.awq(), _drop("qweight"), f"tensor '{LAYER}.weight' is missing"),
    (formats.gptq(), _replace("g_idx", torch.zeros(192, dtype=torch.int32)),
     "g_idx' has the shape [192], expected [320]"),
    (formats.gptq(), _drop("scales"), f"tensor '{LAYER}.scales' is missing"),
    (formats.fp8_tensor(), _replace("weight_scale", torch.ones(3)),
     "weight_scale' has the shape [3], expected [] or [1] or [1, 1] or [192] or [192, 1]"),
    (formats.fp8_blocks(), _replace("weight_scale_inv", torch.ones(3, 3)),
     "has the shape [3, 3], expected [2, 3] (the weight is [192, 320] in blocks of [128, 128])"),
    (formats.fp8_blocks(), _drop("weight_scale_inv"), f"tensor '{LAYER}.weight_scale_inv' is missing"),
    (formats.fp8_blocks(), _replace("weight", torch.zeros(192, 320)),
     f"tensor '{LAYER}.weight' of shape [192, 320] is stored as F32, though quantization_config makes it FP8"),
    (INT4, _replace("weight_shape", torch.tensor([192, 640])), "can't hold the [192, 640] of 4 bits that weight_shape"),
    (INT4, _replace("weight_scale", torch.ones(192, 1)), "weight_scale' has the shape [192, 1], expected [192, 10]"),
    (INT4, _drop("weight_zero_point"), "weight_zero_point' is missing"),
    (W8A8, _replace("weight_scale", torch.ones(1)), "weight_scale' has the shape [1], expected [192, 1] or [192]"),
    (formats.bitsandbytes("nf4"), _replace("weight.absmax", torch.ones(4)),
     "absmax' has the shape [4], expected [960]"),
    (formats.bitsandbytes("nf4"), _replace("weight.quant_state.bitsandbytes__nf4", torch.zeros(9, dtype=torch.uint8)),
     "does not hold JSON"),
    *((formats.bitsandbytes("nf4"), _replace("weight.quant_state.bitsandbytes__nf4", _bytes(text)),
       "does not hold a blocksize and a shape of two sizes")
      for text in ("5", "[]", '{"blocksize": 64, "shape": 5}', '{"blocksize": 64, "shape": [192]}',
                   '{"blocksize": 0, "shape": [192, 320]}', '{"blocksize": 64, "shape": [192, -320]}')),
    (formats.bitsandbytes_int8(), _drop("SCB"), f"tensor '{LAYER}.SCB' is missing"),
])  # fmt: skip
def test_a_layer_that_does_not_fit_its_config_is_named(
    form: Format, change: Change, words: str, tmp_path: Path
) -> None:
    stored = write_packed(tmp_path, form.config, form.store)
    change(stored)
    save(tmp_path, stored)
    assert words in refusal(tmp_path)


def test_an_act_order_that_names_no_group_is_refused_when_it_is_read(tmp_path: Path) -> None:
    form = formats.gptq(act_order=True)
    stored = write_packed(tmp_path, form.config, form.store)
    stored[f"{LAYER}.g_idx"][7] = 10
    save(tmp_path, stored)
    with pytest.raises(ArtifactError, match="names a group outside the 10 that there are"):
        opened(tmp_path).read_float32(f"{LAYER}.weight")


@pytest.mark.parametrize(("form", "changes", "words"), [
    (formats.awq(), {"group_size": 64}, "expected [5, 192]"),
    (formats.awq(), {"bits": 8}, "AWQ with 8 bits is not supported"),
    (formats.awq(), {"version": "gemv"}, "AWQ's layout 'gemv' is not supported"),
    (formats.awq(), {"group_size": "all"}, "group_size is 'all', not a whole number"),
    (formats.gptq(), {"bits": 8}, "expected [5, 192]"),
    (formats.gptq(), {"bits": 5}, "GPTQ with 5 bits is not supported (known: 2, 3, 4, 8)"),
    (formats.gptq(), {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' is not supported"),
    (formats.gptq(), {"dynamic": {"-:lm_head": {}}}, "dynamic: settings of single layers"),
    (formats.fp8_blocks(), {"weight_block_size": None}, "the config names no blocks"),
    (formats.fp8_blocks(), {"weight_block_size": [128]}, "weight_block_size is [128], not two sizes"),
    (formats.fp8_blocks(), {"fmt": "e5m2"}, "fmt 'e5m2' is not supported"),
    (formats.fp8_blocks(), {"modules_to_not_convert": ["model.layers.0"]},
     f"layer '{LAYER}' is stored as FP8 (blocks of 128 × 128), though quantization_config leaves it out"),
    (formats.fp8_blocks(), {"modules_to_not_convert": ["(a+)+"]}, "could take too long"),
    (formats.fp8_blocks(), {"modules_to_not_convert": ["a("]}, "not a regular expression"),
    (formats.fp8_blocks(), {"modules_to_not_convert": "lm_head"}, "modules_to_not_convert is not a list"),
    (W8A8, {"ignore": [LAYER]}, f"layer '{LAYER}' is stored as compressed-tensors INT8 W8A8, though"),
    (W8A8, {"format": "marlin-24"}, "the format 'marlin-24' is not supported"),
    (W8A8, {"config_groups": {}}, "config_groups is not a map"),
    (W8A8, {"config_groups": {"g": {"targets": ["Linear"], "weights": None}}}, "g does not say how weights are stored"),
    (W8A8, {"quant_method": ["awq"]}, "quant_method \"['awq']\" is not supported"),
    (W8A8, {"quant_method": "hqq"}, "quant_method 'hqq' is not supported (known: awq, gptq, fp8"),
    (W8A8, {"quant_method": "gptq", "bits": 4}, "GPTQ INT4 (groups of 128), but no tensor is stored that way"),
])  # fmt: skip
def test_a_config_that_does_not_fit_the_tensors_is_refused(
    form: Format, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_packed(tmp_path, form.config, form.store)
    set_quantization_config(tmp_path, form.config | changes)
    assert words in refusal(tmp_path)


def test_packed_tensors_without_a_config_are_refused(tmp_path: Path) -> None:
    write_packed(tmp_path, None, formats.awq().store)
    assert "config.json: has no quantization_config, but tensor" in refusal(tmp_path)
    assert ".qweight' of I32" in refusal(tmp_path)


@pytest.mark.parametrize(("file", "form"), [("quant_config.json", formats.awq()),
                                            ("quantize_config.json", formats.gptq())])
def test_the_settings_may_lie_in_the_file_of_old_checkpoints(file: str, form: Format, tmp_path: Path) -> None:
    write_packed(tmp_path, None, form.store)
    settings = {key: value for key, value in form.config.items() if key != "quant_method"}
    (tmp_path / file).write_text(json.dumps(settings))
    assert opened(tmp_path).tensors[f"{LAYER}.weight"].quantised


@pytest.mark.parametrize(("form", "key", "names"), [
    (formats.awq(), "modules_to_not_convert", ["model.layers.1", "v_proj"]),
    (formats.fp8_blocks(), "modules_to_not_convert", ["model.layers.1", "v_proj"]),
    (formats.gptq(), "modules_to_not_convert", ["model.layers.1", "v_proj"]),
    (formats.bitsandbytes("nf4"), "llm_int8_skip_modules", ["model.layers.1", "v_proj"]),
    (W8A8, "ignore", ["re:.*layers.1.*", "model.layers.0.self_attn.v_proj"]),
])  # fmt: skip
def test_modules_that_the_config_leaves_out_are_read_as_they_are(
    form: Format, key: str, names: list[str], tmp_path: Path
) -> None:
    stored = write_packed(tmp_path, form.config | {key: names}, form.store, keep=("layers.1", "v_proj"))
    source = opened(tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"
    assert np.array_equal(source.read_float32(name), stored[name].numpy())
    assert not source.tensors["model.layers.0.self_attn.v_proj.weight"].quantised
    assert source.tensors[f"{LAYER}.weight"].quantised
    set_quantization_config(tmp_path, form.config)
    assert f"is stored as {source.tensors[name].dtype}, though quantization_config makes it" in refusal(tmp_path)


def test_scales_of_a_quantised_cache_are_no_weights(tmp_path: Path) -> None:
    form = formats.fp8_tensor()
    stored = write_packed(tmp_path, form.config, form.store)
    for layer in layers_of(stored, "self_attn.q_proj.weight"):
        stored |= {f"{layer}.self_attn.k_scale": torch.ones(1), f"{layer}.self_attn.v_scale": torch.ones(1)}
    save(tmp_path, stored)
    assert not any("k_scale" in name for name in opened(tmp_path).tensors)


def test_reading_a_quantised_layer_as_bytes_is_refused(tmp_path: Path) -> None:
    write_packed(tmp_path, formats.awq().config, formats.awq().store)
    source = ModelSource.open(tmp_path)
    assert source.read_raw("model.norm.weight").nbytes == source.tensors["model.norm.weight"].nbytes
    with pytest.raises(ArtifactError, match="is stored in several tensors"):
        source.read_raw(f"{LAYER}.weight")
