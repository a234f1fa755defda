"""Turns one submission that wants n replies into n requests, each with an id and a seed of its own."""

import dataclasses
from hashlib import blake2b

import msgspec

from inference.protocol import Submit
from inference.spec import SpecError

MAX_CHOICES = 128


def expand_choices(submit: Submit, n: int) -> list[Submit]:
    """Return n requests for n replies to the same prompt.

    Reply 0 has the seed that was given, reply i the seed `choice_seed(seed, i)`; their ids are `<id>/<i>`, and with
    n = 1 the request stays as it is. Raises SpecError: n greedy replies would all be the same.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_CHOICES:
        raise SpecError("n", f"must be between 1 and {MAX_CHOICES}")
    if n == 1:
        return [submit]
    if submit.params.greedy:
        raise SpecError("n", "must be 1 at temperature 0, where all replies are the same")
    if submit.output_ids:
        raise SpecError("n", "must be 1 for a reply that is resumed")
    return [
        msgspec.structs.replace(
            submit, request_id=f"{submit.request_id}/{index}",
            params=dataclasses.replace(submit.params, seed=choice_seed(submit.params.seed, index)),
        )
        for index in range(n)
    ]


def choice_seed(seed: int, index: int) -> int:
    """The seed of reply `index`: the given one for 0, else 63 bits of BLAKE2b of both numbers, 8 bytes big-endian each.

    A hash and not a sum, so that no reply's random numbers are another's at a different position.
    """
    if index == 0:
        return seed
    both = seed.to_bytes(8, "big") + index.to_bytes(8, "big")
    return int.from_bytes(blake2b(both, digest_size=8, person=b"parley-choice").digest(), "big") >> 1
