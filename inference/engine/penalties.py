"""Changes a row of logits before a token is drawn: penalties, biases, and ends that may not come yet."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from inference.spec import SamplingParams

Float32 = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]


class TokenCounts:
    """How often each id occurred, in arrays that grow as tokens come."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._ids: Ids = np.zeros(64, np.intp)
        self._counts: Float32 = np.zeros(64, np.float32)

    def add(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[place] = token_id
            self._counts[place] += 1

    @property
    def ids(self) -> Ids:
        return self._ids[:len(self._places)]

    @property
    def counts(self) -> Float32:
        return self._counts[:len(self._places)]


class LogitsAdjuster:
    """What one request does to its logits: a pure function of (logits, parameters, prompt, output so far).

    The counts that it keeps only save counting every token again at every step; token_ids may only grow, by appending.
    end_ids: what would end this request besides stop strings. vocabulary: ids that may be drawn, 0 to vocabulary - 1;
    a bias for an id past them is ignored.
    """

    def __init__(self, params: SamplingParams, *, num_prompt: int, end_ids: Collection[int], vocabulary: int) -> None:
        self._params = params
        self._num_prompt = num_prompt
        biases = [(token_id, bias) for token_id, bias in params.logit_bias if token_id < vocabulary]
        self._bias_ids: Ids = np.array([token_id for token_id, _ in biases], np.intp)
        self._biases: Float32 = np.array([bias for _, bias in biases], np.float32)
        self._end_ids: Ids = np.array(sorted(i for i in end_ids if i < vocabulary), np.intp)
        self._vocabulary = vocabulary
        self._all = TokenCounts() if params.repetition_penalty != 1 else None
        self._output = TokenCounts() if params.presence_penalty or params.frequency_penalty else None
        self._counted = 0

    def __call__(self, logits: Float32, token_ids: Sequence[int]) -> Float32:
        """Return the logits to draw the token after token_ids from; the same array when there is nothing to change.

        logits: [vocabulary], left as it is. In this order: the repetition penalty divides positive and multiplies
        negative logits of ids in prompt or output (Keskar et al. 2019, as in transformers); presence and frequency
        penalties are subtracted, the latter for each time an id was drawn (OpenAI's API reference); biases are added;
        end ids become -inf while the reply has fewer than min_tokens tokens.
        """
        self._count(token_ids)
        if self.changes_nothing(token_ids):
            return logits
        too_early = self._is_too_early(token_ids)
        logits = logits.copy()
        if self._all is not None:
            ids, penalty = self._all.ids, np.float32(self._params.repetition_penalty)
            seen = logits[ids]
            logits[ids] = np.where(seen < 0, seen * penalty, seen / penalty)
        if self._output is not None and len(self._output.ids):
            frequency, presence = np.float32(self._params.frequency_penalty), np.float32(self._params.presence_penalty)
            logits[self._output.ids] -= self._output.counts * frequency + presence
        logits[self._bias_ids] += self._biases
        if too_early:
            logits[self._end_ids] = -np.inf
        return logits

    def changes_nothing(self, token_ids: Sequence[int]) -> bool:
        """Return whether the logits for the token after token_ids are left as they are."""
        counts = self._all is not None or self._output is not None
        return not counts and not len(self._bias_ids) and not self._is_too_early(token_ids)

    def _is_too_early(self, token_ids: Sequence[int]) -> bool:
        return len(token_ids) - self._num_prompt < self._params.min_tokens

    def _count(self, token_ids: Sequence[int]) -> None:
        if self._all is None and self._output is None:
            return
        fresh = [token_id for token_id in token_ids[self._counted:] if token_id < self._vocabulary]
        if self._all is not None:
            self._all.add(fresh)
        if self._output is not None:
            first = max(self._counted, self._num_prompt)
            self._output.add([token_id for token_id in token_ids[first:] if token_id < self._vocabulary])
        self._counted = len(token_ids)
