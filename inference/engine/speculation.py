"""Guesses a request's next tokens from its own earlier ones, for one forward pass to verify several at once.

Sampling is a pure function of (logits, parameters, seed, index), so a guess is accepted exactly when it is the token
that would have been drawn: replies don't change by a bit, greedy or sampled, only the number of steps does.
Source of the idea: Saxena, "Prompt lookup decoding" (2023), https://github.com/apoorvumang/prompt-lookup-decoding.
"""

from collections.abc import Sequence

NGRAM_SIZES = (4, 2)  # the longest match is tried first
TILE = 4
"""A verification has a multiple of this many rows, because the kernels take as long for fewer."""
MOST_GUESSES = 4 * TILE - 1
FIXED_ROWS = 5.0
"""What a step costs however many rows it has (reading the weights), in the cost of one more row."""
MEMORY = 0.9  # what is left of an observation's weight after the next one
FIRST_TRIALS, FIRST_RIGHT = 5.0, 3.5


class NgramDrafter:
    """Guesses for one request: what followed the last time that its latest tokens came in this order.

    It keeps the share of right guesses, also of those that nobody verified, and proposes only as many as pay:
    so it goes quiet by itself, and comes back once its guesses would have been right.
    """

    def __init__(self) -> None:
        self._follower: dict[tuple[int, ...], int] = {}  # n-gram → index of the token after its latest occurrence
        self._indexed = 0
        self._guess: list[int] = []
        self._right, self._trials = FIRST_RIGHT, FIRST_TRIALS

    @property
    def chance(self) -> float:
        """The estimated chance that the next guess is right."""
        return self._right / self._trials

    def propose(self, token_ids: Sequence[int], *, decodes: int, most: int) -> list[int]:
        """Up to `most` tokens that may follow; empty where guessing doesn't pay.

        decodes: the sequences that decode in this step, this one included.
        """
        self._index(token_ids)
        start = self._find(token_ids)
        if start is None:
            return []
        count = min(worthwhile(self.chance, decodes), most)
        self._guess = _continuation(token_ids, start, max(count, 1))  # one is scored even when none is verified
        return self._guess[:count]

    def observe(self, drawn: Sequence[int]) -> None:
        """Score the latest proposal with the tokens that this step really brought."""
        guess, self._guess = self._guess, []
        if not guess:
            return
        trials = min(len(guess), len(drawn))
        right = next((i for i in range(trials) if guess[i] != drawn[i]), trials)
        self._right = self._right * MEMORY + right
        self._trials = self._trials * MEMORY + min(right + 1, trials)

    def _index(self, token_ids: Sequence[int]) -> None:
        """Note every n-gram that has a token after it."""
        for end in range(max(self._indexed, min(NGRAM_SIZES)), len(token_ids)):
            for size in NGRAM_SIZES:
                if end >= size:
                    self._follower[tuple(token_ids[end - size:end])] = end
        self._indexed = len(token_ids)

    def _find(self, token_ids: Sequence[int]) -> int | None:
        for size in NGRAM_SIZES:
            start = self._follower.get(tuple(token_ids[-size:]))
            if start is not None:
                return start
        return None


def worthwhile(chance: float, decodes: int) -> int:
    """How many guesses pay, when each is right with that chance if the ones before it are.

    A further row pays while its chance to bring a token is over what a row brings in this step as it is:
    decodes / (FIXED_ROWS + decodes) tokens for each row's cost. Whole tiles only, less the row that is needed anyway.
    """
    needed = decodes / (FIXED_ROWS + decodes)
    count, reached = 0, chance
    while reached > needed and count < MOST_GUESSES:
        count += 1
        reached *= chance
    return max(0, (count + 1) // TILE * TILE - 1)


def _continuation(token_ids: Sequence[int], start: int, count: int) -> list[int]:
    """`count` tokens from `start` on; past the end it goes on with itself, as a loop does."""
    guess: list[int] = []
    for index in range(start, start + count):
        guess.append(token_ids[index] if index < len(token_ids) else guess[index - len(token_ids)])
    return guess
