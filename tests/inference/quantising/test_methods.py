"""What the methods are made of: scaling that changes nothing, rounding that compensates, packing as the format is."""

import pytest
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize

from inference.quantising.blocks import blocks_of
from inference.quantising.checkpoint import pack_int4
from inference.quantising.grids import Fp8Grid, Grid, IntGrid
from inference.quantising.methods import METHODS, Choices, energy, method_of
from inference.quantising.run import quantise
from inference.quantising.solver import Solver, round_nearest
from tests.inference.artifacts.gguf_files import tiny_model
from tests.tiny_models import tiny_llama

GRIDS: dict[str, Grid] = {
    "int8": IntGrid(8, symmetric=True), "int4": IntGrid(4, symmetric=False, group_size=16),
    "int4, searched": IntGrid(4, symmetric=True, group_size=16, searched=True), "fp8": Fp8Grid(),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_scaling_a_layers_inputs_does_not_change_the_model(kind: str) -> None:
    model = tiny_llama(attention_bias=True) if kind == "llama" else tiny_model(kind)
    tokens = torch.randint(0, 200, (1, 40))
    torch.manual_seed(2)
    with torch.no_grad():
        before = model(tokens).logits
        for layer in model.model.layers:
            for block in blocks_of(layer, model.config):
                block.scale(block.shared(torch.rand(block.modules[0].in_features) * 4 + 0.25))
        after = model(tokens).logits
    assert (after - before).abs().max() < 1e-4 * before.abs().max()


@pytest.mark.parametrize("name", METHODS)
def test_what_is_stored_is_what_the_model_computes_with_and_close_to_the_source(name: str) -> None:
    model, method = tiny_llama(initializer_range=0.1), method_of(name, Choices(group_size=32))
    sequences = [torch.randint(0, 200, (200,)).tolist() for _ in range(3)]
    tokens = torch.tensor(sequences[:1])
    with torch.no_grad():
        before = model(tokens).logits
    layers = quantise(model, sequences, method, on_layer=lambda done, total: None)
    with torch.no_grad():
        after = model(tokens).logits
    assert len(layers) == 14
    for module, stored in layers.items():
        assert torch.equal(model.get_submodule(module).weight, stored.values), module
    assert (after - before).norm() < (0.25 if "int4" in name else 0.1) * before.norm()


@pytest.mark.parametrize("name", GRIDS)
def test_compensated_rounding_changes_the_output_less_than_the_nearest_numbers(name: str) -> None:
    torch.manual_seed(0)
    grid, weight = GRIDS[name], torch.randn(48, 64)
    inputs = torch.randn(400, 8) @ torch.randn(8, 64) + 0.1 * torch.randn(400, 64)
    nearest = round_nearest(weight, grid)
    solved = Solver(energy([inputs])).solve(weight, grid)
    wanted = inputs @ weight.T
    error, before = ((inputs @ result.values.T - wanted).square().mean() for result in (solved, nearest))
    assert error < 0.5 * before
    wide = solved.scales.columns(grid.groups(64))
    assert torch.equal(grid.decode(solved.codes, wide), solved.values)
    assert torch.equal(grid.codes(solved.values, wide).float(), solved.codes.float())


@pytest.mark.parametrize("name", GRIDS)
def test_with_unrelated_inputs_each_number_is_the_nearest(name: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(16, 64)
    solved = Solver(torch.eye(64)).solve(weight, GRIDS[name])
    wanted = round_nearest(weight, GRIDS[name], solved.scales).values
    assert ((solved.values - wanted).abs() > 1e-5).float().mean() < 0.01  # ties and last bits


def test_rounding_is_that_of_compressed_tensors() -> None:
    torch.manual_seed(0)
    grid, weight = IntGrid(4, symmetric=False, group_size=16), torch.randn(32, 64)
    result = round_nearest(weight, grid)
    assert result.scales.zero is not None
    arguments = QuantizationArgs(num_bits=4, type="int", symmetric=False, strategy="group", group_size=16)
    zero = result.scales.zero.to(torch.int8)
    codes = quantize(weight, result.scales.scale, zero, arguments, dtype=torch.int8)
    assert torch.equal(codes.float(), result.codes)
    assert torch.allclose(dequantize(codes, result.scales.scale, zero, arguments), result.values, rtol=1e-6)
    assert torch.equal(pack_int4(result.codes), pack_to_int32(codes, 4))
    assert torch.equal(pack_int4(zero.T.float()).T, pack_to_int32(zero, 4, packed_dim=0))
