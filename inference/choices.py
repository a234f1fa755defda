"""What n replies to one prompt are: requests with the same sampling but seeds of their own, the first the given one."""

import dataclasses
from hashlib import blake2b

from inference.spec import GREEDY_BELOW, SamplingParams, SpecError

MAX_CHOICES = 128


def check_choices(n: int, *, temperature: float) -> None:
    """Refuse what n replies can't be. Raises SpecError: n greedy replies would all be the same."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_CHOICES:
        raise SpecError("n", f"must be between 1 and {MAX_CHOICES}")
    if n > 1 and temperature < GREEDY_BELOW:
        raise SpecError("n", "must be 1 at temperature 0, where all replies are the same")


def choice_params(params: SamplingParams, n: int) -> list[SamplingParams]:
    """Return the sampling of n replies: reply i has the seed `choice_seed(seed, i)`. Raises SpecError."""
    check_choices(n, temperature=params.temperature)
    return [dataclasses.replace(params, seed=choice_seed(params.seed, index)) for index in range(n)]


def choice_seed(seed: int, index: int) -> int:
    """The seed of reply `index`: the given one for 0, else 63 bits of BLAKE2b of both numbers, 8 bytes big-endian each.

    A hash and not a sum, so that no reply's random numbers are another's at a different position.
    """
    if index == 0:
        return seed
    both = seed.to_bytes(8, "big") + index.to_bytes(8, "big")
    return int.from_bytes(blake2b(both, digest_size=8, person=b"parley-choice").digest(), "big") >> 1
