"""Stored tensors: what is known of one without reading it, and the numbers that its bytes stand for."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError

FLOAT_DTYPES = ("F32", "F16", "BF16", "F64")  # the safetensors types that are weights by themselves
FLOAT8_DTYPES = ("F8_E4M3", "F8_E5M2", "F8_E8M0")  # need a scale beside them
INTEGER_DTYPES = {"U8": "<u1", "I8": "<i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
                  "U64": "<u8", "I64": "<i8"}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: Hugging Face name, stored type ("F32", "BF16", "Q4_1", "AWQ INT4"), shape (row-major), bytes stored.

    quantised: it is stored in several tensors (packed values, scales, zero points); shape is that of its values.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    quantised: bool = False


def float_values(raw: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return the values of a floating type in float32 [shape]. Raises ArtifactError for another type."""
    if dtype == "F32":
        return raw.view("<f4").reshape(shape)
    if dtype == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if dtype in ("F16", "F64"):
        return raw.view("<f2" if dtype == "F16" else "<f8").astype(np.float32).reshape(shape)
    if dtype in FLOAT8_DTYPES:
        return float8_table(dtype)[raw].reshape(shape)
    raise ArtifactError("weights", f"values of type {dtype} can't be read as numbers with a fraction")


def integer_values(raw: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the values of an integer type in that type [shape]. Raises ArtifactError for another type."""
    if dtype not in INTEGER_DTYPES:
        raise ArtifactError("weights", f"values of type {dtype} can't be read as whole numbers")
    return raw.view(INTEGER_DTYPES[dtype]).reshape(shape)


@functools.cache
def float8_table(dtype: str) -> npt.NDArray[np.float32]:
    """Return what each of the 256 bytes means. [256]

    Source: OCP 8-bit floating point specification (E4M3 without infinities, E5M2) and OCP microscaling (E8M0).
    """
    codes = np.arange(256, dtype=np.uint16)
    if dtype == "F8_E5M2":  # the upper half of a float16
        return (codes << 8).view(np.float16).astype(np.float32)
    if dtype == "F8_E8M0":
        with np.errstate(over="ignore"):
            return np.where(codes == 255, np.nan, np.exp2(codes.astype(np.float64) - 127)).astype(np.float32)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = (codes >> 3 & 15).astype(np.int64), (codes & 7).astype(np.float64)
    values = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * np.exp2(exponent - 7.0))
    return np.where(codes & 0x7F == 0x7F, np.nan, sign * values).astype(np.float32)
