"""Kernels of single rows against their slow twins."""

import numpy as np
from numba import njit

from inference.kernels import twins
from inference.kernels.rowwise import rms_norm_row, rotate_heads
from inference.kernels.vector import LANES, address, silu_multiply


@njit
def _silu_multiply(gate, up, out):  # type: ignore[no-untyped-def]
    for start in range(0, gate.shape[0], LANES):
        silu_multiply(address(gate) + start * 4, address(up) + start * 4, address(out) + start * 4)


def test_silu_equals_the_slow_twin_from_far_below_zero_to_far_above() -> None:
    gate = np.concatenate([np.linspace(-120, 120, 4000), [0.0, -0.0] * 8]).astype(np.float32)
    up = np.random.default_rng(0).standard_normal(len(gate)).astype(np.float32)
    out = np.empty_like(gate)
    _silu_multiply(gate, up, out)
    np.testing.assert_allclose(out, twins.silu_multiply(gate, up), rtol=2e-6, atol=1e-35)


def test_silu_of_what_is_no_number_is_no_number() -> None:
    gate = np.full(LANES, np.nan, np.float32)
    out = np.zeros(LANES, np.float32)
    _silu_multiply(gate, np.ones(LANES, np.float32), out)
    assert np.isnan(out).all()


def test_rms_norm_equals_the_slow_twin() -> None:
    rng = np.random.default_rng(1)
    x, weight = np.zeros(96, np.float32), rng.standard_normal(70, np.float32)
    x[:70] = rng.standard_normal(70)
    out = np.empty(70, np.float32)
    rms_norm_row(x, 70, weight, np.float32(1e-5), out)
    np.testing.assert_allclose(out, twins.rms_norm(x[:70], weight, 1e-5), rtol=1e-5)


def test_rotation_equals_the_slow_twin() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 10), np.float32)
    angles = rng.standard_normal(5).astype(np.float32)
    wanted = twins.rotate(x, np.cos(angles), np.sin(angles))
    flat = x.reshape(-1).copy()
    rotate_heads(flat, 3, 10, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(flat.reshape(3, 10), wanted, rtol=1e-6, atol=1e-6)
