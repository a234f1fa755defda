"""Small whole numbers packed into 32-bit words: a dense stream of bits, lowest bits first."""

from typing import Any

import numpy as np
import numpy.typing as npt


def unpack(words: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint8]:
    """Return the numbers in the words of each row. words: int32 [rows, n]; result: [rows, n * 32 // bits]

    bits is 1 to 8. A number may begin in one word and end in the next (3, 5, 6 and 7 bits).
    """
    rows = words.shape[0]
    octets = np.ascontiguousarray(words.astype("<i4", copy=False)).view(np.uint8).reshape(rows, -1)
    if bits == 8:
        return octets
    if bits == 4:
        halves = np.empty((rows, 2 * octets.shape[1]), np.uint8)
        halves[:, ::2], halves[:, 1::2] = octets & 15, octets >> 4
        return halves
    stream = np.unpackbits(octets, axis=1, bitorder="little")
    count = stream.shape[1] // bits
    digits = stream[:, : count * bits].reshape(rows, count, bits)
    powers = 1 << np.arange(bits, dtype=np.uint8)
    numbers: npt.NDArray[np.uint8] = (digits * powers).sum(axis=2, dtype=np.uint8)
    return numbers
