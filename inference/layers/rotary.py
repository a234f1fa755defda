"""Tables of rotary position embedding, as transformers computes them (modeling_rope_utils, float32)."""

import math

import numpy as np
import numpy.typing as npt

from inference.decoder_spec import RopeSpec

Float32 = npt.NDArray[np.float32]


def inverse_frequencies(rope: RopeSpec, head_dim: int, *, long: bool = False) -> Float32:
    """Return the angle per position of each rotated pair, [rotated / 2].

    long: longrope's factors for texts past original_max_position.
    """
    rotated = rope.rotated(head_dim)
    exponents = np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated)
    powers = np.float32(rope.theta) ** exponents
    if rope.kind == "longrope":
        factors = np.array(rope.long_factor if long else rope.short_factor, np.float32)
        return (np.float32(1.0) / (factors * powers)).astype(np.float32)
    inverse = (np.float32(1.0) / powers).astype(np.float32)
    if rope.kind == "linear":
        return (inverse / np.float32(rope.factor)).astype(np.float32)
    if rope.kind == "llama3":
        return _llama3(inverse, rope)
    if rope.kind == "yarn":
        return _yarn(inverse, rope, rotated)
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
    result: Float32 = np.where(wavelength > longest, slowed, kept).astype(np.float32)
    return result


def _yarn(inverse: Float32, rope: RopeSpec, rotated: int) -> Float32:
    """Keep pairs that turn often in the original context, slow down those that hardly turn, and blend between.

    Source: Peng et al. 2023 (YaRN), section 3.2.
    """

    def pair_that_turns(times: float) -> float:
        turns = math.log(rope.original_max_position / (times * 2 * math.pi))
        return rotated * turns / (2 * math.log(rope.theta))

    low, high = pair_that_turns(rope.beta_fast), pair_that_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    span = high - low if high != low else 0.001
    slowed = np.clip((np.arange(rotated // 2, dtype=np.float32) - low) / span, 0, 1)
    result: Float32 = (inverse / np.float32(rope.factor) * slowed + inverse * (1 - slowed)).astype(np.float32)
    return result


def rotary_tables(
    rope: RopeSpec, head_dim: int, positions: int, *, long: bool = False
) -> tuple[Float32, Float32]:
    """Return cosine and sine, times the rope's attention factor, [positions, rotated / 2] each.

    long: longrope's factors for texts past original_max_position.
    """
    inverse = inverse_frequencies(rope, head_dim, long=long)
    angles = np.arange(positions, dtype=np.float32)[:, None] * inverse[None, :]
    factor = np.float32(rope.attention_factor)
    return (np.cos(angles) * factor).astype(np.float32), (np.sin(angles) * factor).astype(np.float32)
