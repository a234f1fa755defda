"""Packed linear layers against their slow twin, and a row's bits against those of the row alone."""

import numpy as np
import pytest
from numba import njit

from inference.kernels import twins
from inference.kernels.integer_products import MOST_DEPTH, activation_limit
from inference.kernels.linear import PANEL, Packed, linear_panels, narrow_row, operand
from inference.kernels.vector import address
from inference.layers.linear import fill, fill_bias, packed_room, padded, panels_for
from inference.spec import MODES, Mode


def _layer(mode: Mode, outputs: int, inputs: int) -> tuple[Packed, np.ndarray]:
    rng = np.random.default_rng(outputs)
    packed = packed_room(layers=2, panels=panels_for(outputs), inputs=inputs, mode=mode)
    values = rng.standard_normal((outputs, inputs), np.float32)
    fill(packed, 1, values)
    fill_bias(packed, 1, rng.standard_normal(outputs, np.float32))
    return packed, values


@njit
def _narrow(packed, x, k, narrow, scale):  # type: ignore[no-untyped-def]
    for row in range(len(x)):
        narrow_row(packed, x, k, narrow, scale, row)
    inputs = operand(packed, x, narrow)
    return address(inputs), inputs.strides[0]


def _run(x: np.ndarray, packed: Packed, residual: np.ndarray | None = None) -> np.ndarray:
    panels, k = packed.weights.shape[1], x.shape[1]
    out = np.empty((len(x), panels * PANEL), np.float32)
    base = np.zeros((1, panels * PANEL), np.float32) if residual is None else residual
    stride = 0 if residual is None else base.strides[0]
    rows = np.zeros((len(x), padded(k)), np.float32)
    rows[:, :k] = x
    narrow, scale = np.zeros(rows.shape, np.int16), np.zeros(len(x), np.float32)
    start, step = _narrow(packed, rows, k, narrow, scale)
    linear_panels(start, step, scale.ctypes.data, len(x), packed, 1, 0, panels, out.ctypes.data, out.strides[0],
                  base.ctypes.data, stride)  # fmt: skip
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 200, 70), (2, 96, 64), (7, 33, 5), (29, 64, 128),
                                                         (9, 40, 5001)])
def test_equals_the_slow_twin(mode: Mode, rows: int, outputs: int, inputs: int) -> None:
    packed, _ = _layer(mode, outputs, inputs)
    x = np.random.default_rng(rows).standard_normal((rows, inputs), np.float32)
    residual = np.ones((rows, padded(outputs)), np.float32)
    np.testing.assert_allclose(_run(x, packed), twins.linear(x, packed, 1), rtol=1e-4, atol=5e-4)
    np.testing.assert_allclose(_run(x, packed, residual), twins.linear(x, packed, 1) + 1, rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [2, 3, 8, 12, 23, 32])
def test_a_row_among_others_has_the_bits_of_the_row_alone(mode: Mode, rows: int) -> None:
    packed, _ = _layer(mode, 200, 96)
    x = np.random.default_rng(rows).standard_normal((rows, 96), np.float32)
    np.testing.assert_array_equal(_run(x, packed), np.concatenate([_run(x[i : i + 1], packed) for i in range(rows)]))


def test_float32_keeps_weights_and_int8_stays_within_half_a_step() -> None:
    packed, values = _layer("float32", 50, 40)
    np.testing.assert_array_equal(twins.unpacked(packed, 1)[:50], values)
    packed, values = _layer("int8", 50, 40)
    half_steps = packed.scale[1, :50, None] * 0.5001
    assert (np.abs(twins.unpacked(packed, 1)[:50] - values) <= half_steps).all()


def test_an_output_with_a_weight_that_is_no_number_is_no_number_and_others_are_untouched() -> None:
    packed = packed_room(layers=1, panels=1, inputs=8, mode="int8")
    values = np.ones((3, 8), np.float32)
    values[1, 4] = np.nan
    fill(packed, 0, values)
    assert np.isnan(packed.scale[0, :3]).tolist() == [False, True, False]
    np.testing.assert_allclose(twins.unpacked(packed, 0)[[0, 2]], 1.0, rtol=1e-6)


def test_rows_in_every_second_panel_leave_the_others_alone() -> None:
    packed = packed_room(layers=1, panels=4, inputs=4, mode="float32")
    fill(packed, 0, np.full((40, 4), 2, np.float32), first_output=PANEL, step=2)
    sums = packed.weights[0].sum(axis=1)  # [panels, lanes]
    assert sums[0].sum() == sums[2].sum() == 0
    assert (sums[1] == 8).all()
    assert (sums[3, :8] == 8).all() and (sums[3, 8:] == 0).all()


def test_a_sum_of_the_largest_products_stays_within_32_bits() -> None:
    k = MOST_DEPTH
    packed = packed_room(layers=2, panels=1, inputs=k, mode="int8")
    fill(packed, 1, np.ones((32, k), np.float32))
    assert activation_limit(k) * 127 * k < 2**31 <= (activation_limit(k) + 1) * 127 * k
    np.testing.assert_allclose(_run(np.full((3, k), 5.0, np.float32), packed), 5.0 * k, rtol=1e-6)


def test_a_row_that_is_not_finite_gives_no_number_and_others_are_untouched() -> None:
    packed, _ = _layer("int8", 32, 64)
    x = np.random.default_rng(3).standard_normal((4, 64), np.float32)
    alone = _run(x, packed)
    x[1, 5], x[2, 6] = np.nan, -np.inf
    mixed = _run(x, packed)
    assert np.isnan(mixed[1:3]).all()
    np.testing.assert_array_equal(mixed[[0, 3]], alone[[0, 3]])


def test_a_row_of_zeros_gives_the_bias() -> None:
    packed, _ = _layer("int8", 32, 64)
    np.testing.assert_array_equal(_run(np.zeros((2, 64), np.float32), packed)[1], packed.bias[1])
