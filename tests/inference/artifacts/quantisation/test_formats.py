"""Each quantised format: weights as the format's own code dequantises them, and the logits that follow from them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from inference.artifacts.check import check_decoder_weights, count_parameters
from inference.artifacts.source import ModelSource
from inference.engine.runner import load_runner
from inference.spec import EngineConfig
from tests.inference.artifacts.quantisation import formats
from tests.inference.artifacts.quantisation.formats import GROUP, Format
from tests.inference.artifacts.quantisation.packed_models import SHAPE, is_linear, write_packed
from tests.inference.models.steps import run_alone
from tests.tiny_models import tiny_config

DYNAMIC_INT8 = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
STATIC_INT8 = {"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": False, "symmetric": True}
DYNAMIC_FP8 = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
INT8_CHANNEL = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
INT4_GROUP = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True}

FORMATS: dict[str, Format] = {
    "fp8, one scale": formats.fp8_tensor(),
    "fp8, blocks": formats.fp8_blocks(),
    "fp8, blocks, power-of-two scales": formats.fp8_blocks(torch.float8_e8m0fnu),
    "fbgemm fp8": formats.fbgemm(),
    "awq": formats.awq(),
    "awq without zero points": formats.awq(zero_point=False),
    "gptq v1": formats.gptq(),
    "gptq v1, act-order": formats.gptq(act_order=True),
    "gptq v2": formats.gptq(version=2),
    "gptq v2, act-order": formats.gptq(version=2, act_order=True),
    "gptq 2 bits": formats.gptq(2),
    "gptq 3 bits": formats.gptq(3),
    "gptq 8 bits": formats.gptq(8),
    "smoothquant W8A8, dynamic": formats.compressed("int-quantized", INT8_CHANNEL, DYNAMIC_INT8),
    "smoothquant W8A8, static": formats.compressed("int-quantized", INT8_CHANNEL, STATIC_INT8),
    "int8 weights alone": formats.compressed("naive-quantized", INT8_CHANNEL),
    "int8 weights alone, packed": formats.compressed("pack-quantized", INT8_CHANNEL),
    "int8, one scale, asymmetric": formats.compressed("naive-quantized", INT8_CHANNEL | {"strategy": "tensor",
                                                                                         "symmetric": False}),
    "int4 groups": formats.compressed("pack-quantized", INT4_GROUP),
    "int4 groups, asymmetric": formats.compressed("pack-quantized", INT4_GROUP | {"symmetric": False}),
    "int3 groups, asymmetric": formats.compressed("pack-quantized", INT4_GROUP | {"num_bits": 3, "symmetric": False}),
    "fp8 W8A8 an output": formats.compressed("float-quantized", FP8 | {"strategy": "channel"}, DYNAMIC_FP8),
    "fp8 weights alone": formats.compressed("naive-quantized", FP8 | {"strategy": "tensor"}),
    "fp8 compressed blocks": formats.compressed("naive-quantized", FP8 | {"strategy": "block",
                                                                          "block_structure": [128, 128]}),
    "nf4": formats.bitsandbytes("nf4"),
    "nf4, double quantisation": formats.bitsandbytes("nf4", nested=True),
    "fp4": formats.bitsandbytes("fp4"),
    "bitsandbytes int8": formats.bitsandbytes_int8(),
}  # fmt: skip


def oracle_weights(form: Format, stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the model's whole state, quantised layers dequantised by the oracle."""
    plain = {name: value for name, value in stored.items() if not name.rpartition(".")[0].endswith("_proj")
             and "_proj.weight." not in name}  # fmt: skip
    layers: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in stored.items():
        if name not in plain:
            layer, _, part = name.partition("_proj.")
            layers.setdefault(f"{layer}_proj", {})[part] = value
    return plain | {f"{layer}.weight": form.weight(parts).float() for layer, parts in layers.items()}


@pytest.mark.parametrize("name", FORMATS)
def test_weights_and_logits_are_those_of_the_formats_own_code(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    form = FORMATS[name]
    stored = write_packed(tmp_path, form.config, form.store)
    source = ModelSource.open(tmp_path)
    check_decoder_weights(source, source.decoder_spec())
    expected = oracle_weights(form, stored)
    assert set(source.tensors) == set(expected)
    for tensor in expected:
        want = expected[tensor].numpy()
        assert source.tensors[tensor].shape == want.shape
        np.testing.assert_allclose(source.read_float32(tensor), want, rtol=1e-3, atol=1e-7, err_msg=tensor)
    model = LlamaForCausalLM(tiny_config(**SHAPE)).eval()
    model.load_state_dict(expected)
    assert count_parameters(source) == model.num_parameters()
    tokens = list(range(5, 45))
    with torch.no_grad():
        want = model(torch.tensor([tokens])).logits[0].numpy()
    config = EngineConfig(model=str(tmp_path), mode="float32", max_model_len=64, max_num_seqs=1, threads=1,
                          max_num_batched_tokens=64)
    runner = load_runner(config, on_progress=lambda *_: None)
    have = np.stack(run_alone(runner, tokens, chunk=40, table=[0, 1, 2]).logits)
    assert np.abs(have - want).max() <= 1e-3 * np.abs(want).max()
    kinds = {info.dtype for tensor, info in source.tensors.items() if is_linear(tensor)}
    assert source.conversions("float32")[0] == f"14 tensors stored as {kinds.pop()} run as float32"


@pytest.mark.parametrize(("name", "words"), [
    ("smoothquant W8A8, dynamic", "INT8, one scale a token, found at run time"),
    ("smoothquant W8A8, static", "INT8, one scale a tensor, stored"),
    ("fp8 W8A8 an output", "FP8, one scale a token, found at run time"),
    ("fp8, one scale", "FP8, one scale a tensor, stored"),
])  # fmt: skip
def test_what_the_checkpoint_wants_of_activations_is_recorded_and_told(name: str, words: str, tmp_path: Path) -> None:
    write_packed(tmp_path, FORMATS[name].config, FORMATS[name].store)
    source = ModelSource.open(tmp_path)
    assert str(source.activations) == words
    assert source.conversions("int8")[1] == (
        f"the checkpoint rounds activations ({words}); here they stay in floating point")


def test_float8_bytes_mean_what_torch_says_they_mean() -> None:
    from inference.artifacts.tensors import float8_table

    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    for name, dtype in (("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2),
                        ("F8_E8M0", torch.float8_e8m0fnu)):  # fmt: skip
        np.testing.assert_array_equal(float8_table(name), codes.view(dtype).float().numpy())
