"""The kernels of the compiled encoder against plain arithmetic: norm, GELU, attention of texts, 8-bit products."""

import math

import numpy as np
import pytest
from numba import njit

from inference.kernels.dot8 import GROUP
from inference.kernels.normalise import gelu_row, layer_norm_row
from inference.kernels.projection import pack8, project
from inference.kernels.text_attention import KEY_LANES, QUERY_ROWS, attend_text
from inference.kernels.twins import project8
from inference.kernels.vector import address


@njit
def _norm(x, weight, bias, epsilon, out):  # type: ignore[no-untyped-def]
    layer_norm_row(address(x), x.shape[0], address(weight), address(bias), epsilon, address(out))


@njit
def _gelu(x):  # type: ignore[no-untyped-def]
    gelu_row(address(x), x.shape[0])


@njit
def _attend(qkv, first, count, head, dim, width, keys, scores, out):  # type: ignore[no-untyped-def]
    attend_text(qkv, first, count, head, dim, width, keys, scores, out)


@njit
def _project(x, packed, out, residual, codes, scales, firsts):  # type: ignore[no-untyped-def]
    project(address(x), x.strides[0], x.shape[0], packed, 1, address(out), out.strides[0], address(residual),
            residual.strides[0], codes, scales, firsts)


def test_layer_norm() -> None:
    draw = np.random.default_rng(0)
    x, weight, bias = (draw.normal(2, 3, 384).astype(np.float32) for _ in range(3))
    out = np.zeros_like(x)
    _norm(x, weight, bias, np.float32(1e-12), out)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out, (wide - wide.mean()) / wide.std() * weight + bias, atol=1e-5)


def test_gelu_is_the_exact_one() -> None:
    x = np.concatenate([np.linspace(-9, 9, 3200), [0.0] * 15, [np.nan]]).astype(np.float32)
    out = x.copy()
    _gelu(out)
    expected = [value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in x[:-1].astype(np.float64)]
    np.testing.assert_allclose(out[:-1], expected, atol=1e-6)
    assert np.isnan(out[-1])


@pytest.mark.parametrize("count", [1, 17, 70, 130])
def test_attention_of_a_text(count: int) -> None:
    draw = np.random.default_rng(count)
    width, dim, head, first = 96, 32, 2, 5
    qkv = draw.normal(size=(first + count + 3, 3 * width)).astype(np.float32)
    parts = -(-count // KEY_LANES)
    out = np.full((len(qkv), width), 7, np.float32)
    _attend(qkv, first, count, head, dim, width, np.zeros((parts, dim, KEY_LANES), np.float32),
            np.zeros((QUERY_ROWS, parts * KEY_LANES), np.float32), out)
    query, key, value = (qkv[first : first + count, part * width + head * dim :][:, :dim].astype(np.float64)
                         for part in range(3))
    weights = np.exp(query @ key.T)
    expected = weights @ value / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out[first : first + count, head * dim :], expected, atol=1e-4)
    out[first : first + count, head * dim : head * dim + dim] = 7
    assert (out == 7).all()  # nothing else is written


@pytest.mark.parametrize("rows", [1, 2, 3, 6, 13])
def test_8_bit_products_equal_their_twin(rows: int) -> None:
    draw = np.random.default_rng(rows)
    inputs, outputs = 96, 64
    weights = [draw.normal(size=(outputs, inputs)).astype(np.float32) for _ in range(2)]
    biases = [draw.normal(size=outputs).astype(np.float32) for _ in range(2)]
    factors = [draw.uniform(0.5, 2, inputs).astype(np.float32) for _ in range(2)]
    packed = pack8(weights, biases, factors)
    x = (draw.normal(size=(rows, inputs)) * 10 ** draw.uniform(-2, 2, (rows, 1))).astype(np.float32)
    x[0, :GROUP] = 0
    out, residual = np.zeros((2, rows, outputs), np.float32)
    _project(x, packed, out, residual, np.zeros((rows, inputs), np.int8),
             np.zeros((rows, inputs // GROUP), np.float32), np.zeros((rows, inputs // GROUP), np.int32))
    np.testing.assert_allclose(out, project8(x, packed, 1), rtol=2e-6, atol=1e-5 * np.abs(out).max())
    exact = x.astype(np.float64) @ weights[1].T.astype(np.float64) + biases[1]
    assert np.abs(out - exact).max() < 0.05 * np.abs(exact).max()


def test_a_value_that_is_not_a_number_stays_in_its_row() -> None:
    packed = pack8([np.ones((32, 32), np.float32)] * 2, [np.zeros(32, np.float32)] * 2, [np.ones(32, np.float32)] * 2)
    x = np.ones((3, 32), np.float32)
    x[1, 20] = np.inf
    out, residual = np.zeros((2, 3, 32), np.float32)
    _project(x, packed, out, residual, np.zeros((3, 32), np.int8), np.zeros((3, 2), np.float32),
             np.zeros((3, 2), np.int32))
    assert np.isnan(out[1]).all() and np.allclose(out[[0, 2]], 32)
