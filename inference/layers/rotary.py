"""Tables of rotary position embedding, as transformers computes them (modeling_rope_utils, float32)."""

import math

import numpy as np
import numpy.typing as npt

from inference.decoder_spec import RopeSpec

Float32 = npt.NDArray[np.float32]


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> Float32:
    """Return the angle per position of each pair, [head_dim / 2]."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    inverse = (np.float32(1.0) / np.float32(rope.theta) ** exponents).astype(np.float32)
    if rope.kind == "linear":
        return (inverse / np.float32(rope.factor)).astype(np.float32)
    if rope.kind == "llama3":
        return _llama3(inverse, rope)
    return inverse


def _llama3(inverse: Float32, rope: RopeSpec) -> Float32:
    """Slow down the low frequencies by `factor`, keep the high ones, and blend between. Source: Llama 3.1."""
    wavelength = 2 * math.pi / inverse
    longest = rope.original_max_position / rope.low_freq_factor
    shortest = rope.original_max_position / rope.high_freq_factor
    slowed = inverse / np.float32(rope.factor)
    blend = (rope.original_max_position / wavelength - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    mixed = (1 - blend) * slowed + blend * inverse
    kept = np.where(wavelength < shortest, inverse, mixed)
    return np.where(wavelength > longest, slowed, kept).astype(np.float32)


def rotary_tables(rope: RopeSpec, head_dim: int, positions: int) -> tuple[Float32, Float32]:
    """Return cosine and sine, [positions, head_dim / 2] each."""
    inverse = inverse_frequencies(rope, head_dim)
    angles = np.arange(positions, dtype=np.float32)[:, None] * inverse[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
