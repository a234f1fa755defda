"""Gives memory that loading has freed back to the system, so that other models and processes can have it."""

import contextlib
import ctypes


def give_back_freed_memory() -> None:
    """Trim the C library's heaps. Tensors that were dequantised while loading leave tens of megabytes in them.

    Does nothing where the C library isn't glibc.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
