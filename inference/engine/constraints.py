"""Keeps the replies of constrained requests to their grammars: which tokens may come next, and when a reply is whole.

What a matcher knows follows from the request's output tokens alone, so a resumed request replays them.
"""

from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from inference.spec import Constraint, SpecError
from inference.text.constraint import FIELD, LIMITS, grammar_of, refusal

Float32 = npt.NDArray[np.float32]

MOST_COMPILED = 64


class ConstraintError(ValueError):
    """A reply can't go on under its constraint: a token doesn't fit, or the matcher reached a limit."""


class ConstraintState:
    """How far one reply has come in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def complete(self) -> bool:
        """Whether nothing can follow, so that the reply ends without an end id."""
        return bool(self._matcher.is_stopped())

    def allow(self, logits: Float32) -> Float32:
        """Return a copy of logits, [vocabulary], with -inf where the grammar has no such token, end ids included.

        Raises ConstraintError.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        allowed = np.unpackbits(bits, count=len(logits), bitorder="little").view(np.bool_)
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token_id: int) -> None:
        """Go on with a token that isn't an end id. Raises ConstraintError when it doesn't fit."""
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(" ".join(self._matcher.get_error().split())[:300])


class Constraints:
    """Compiles constraints for one model's tokens, and keeps the latest ones.

    vocabulary: one past the largest id of the tokenizer. end_ids: the model's own; a reply may draw them where the
    grammar lets it end.
    """

    def __init__(self, tokenizer: Tokenizer, *, vocabulary: int, end_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._end_ids = sorted(i for i in end_ids if i < vocabulary)
        self._compiled: OrderedDict[Constraint, LLMatcher] = OrderedDict()

    def start(self, constraint: Constraint) -> ConstraintState:
        """Return the state of a reply without tokens. Raises SpecError when the constraint can't be compiled."""
        matcher = self._compiled.get(constraint)
        if matcher is None:
            matcher = self._compile(constraint)
            self._compiled[constraint] = matcher
            if len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(constraint)
        return ConstraintState(matcher.deep_copy())

    def _compile(self, constraint: Constraint) -> LLMatcher:
        matcher = LLMatcher(self._tokens, grammar_of(constraint), log_level=0, limits=LIMITS)
        if not matcher.is_error():
            matcher.compute_bitmask()  # finds what can never match, and is the slowest of all masks
        if matcher.is_error():
            raise refusal(constraint, matcher.get_error())
        return matcher

    def prepare(self) -> None:
        """Build what every constraint needs, about half a second for 50,000 tokens; else the first one waits for it."""
        with suppress(SpecError):  # said to the requests that have a constraint
            _ = self._tokens

    @cached_property
    def _tokens(self) -> LLTokenizer:
        if not self._end_ids:
            raise SpecError(FIELD, "can't be set for a model without an end id, because replies could not end")
        try:
            return LLTokenizer(self._tokenizer.to_str(), n_vocab=self._vocabulary, eos_token=self._end_ids)
        except ValueError as error:
            raise SpecError(FIELD, f"can't be set for this model's tokenizer ({error})") from None
