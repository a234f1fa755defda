"""Turns a request's tokens into text as they come, and sees where a stop string ends it.

tokenizers' own DecodeStream doesn't do: it drops half a character at the end, and for decoders with byte fallback its
pieces often differ from the decoded whole, or it raises.
"""

import json
import re
from collections.abc import Iterable

from tokenizers import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class TokenText:
    """What the text of tokens depends on, read once for an engine: the tokenizer and its special and byte tokens.

    vocab_size: one past the last id that the tokenizer knows. shown_ids: those that have text, so that a special or
    unknown id doesn't even end a run of byte tokens.
    """

    def __init__(self, tokenizer: Tokenizer, special_ids: Iterable[int]) -> None:
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.shown_ids = frozenset(vocabulary.values()) - frozenset(special_ids)
        self.vocab_size = max(vocabulary.values()) + 1
        self.byte_ids: frozenset[int] = frozenset()
        if tokenizer.decoder is not None and "ByteFallback" in json.dumps(_decoder_state(tokenizer)):
            self.byte_ids = frozenset(i for token, i in vocabulary.items() if _BYTE_TOKEN.fullmatch(token))

    def decode(self, token_ids: list[int]) -> str:
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=False)
        return text


def _decoder_state(tokenizer: Tokenizer) -> object:
    return json.loads(tokenizer.decoder.__getstate__())


class Detokenizer:
    """The text of one request. What all calls return, joined, is the decoded whole up to the first stop string.

    Text is held back while it may still change: half a character, a run of byte tokens that isn't over, or the
    beginning of a stop string. `stopped` is true once a stop string has been completed.
    """

    def __init__(self, text: TokenText, stop: tuple[str, ...] = ()) -> None:
        self._text = text
        self._stop = stop
        self._window: list[int] = []  # tokens before the unsettled ones, for context, and the unsettled ones
        self._settled = 0  # tokens of the window whose text can't change any more
        self._shown = 0  # characters of the window's text that have left the window
        self._held = ""  # text that has left the window and may become a stop string
        self.stopped = False

    def push(self, token_id: int, *, silent: bool = False, last: bool = False) -> str:
        """The text that a further token adds.

        silent: the token itself has none, because it is an end id. last: nothing is held back any more.
        """
        if self.stopped:
            return ""
        fresh = "" if silent or token_id not in self._text.shown_ids else self._append(token_id)
        released = self._release(fresh)
        return released + self.finish() if last and not self.stopped else released

    def finish(self) -> str:
        """Release what is still held back, because nothing more will come."""
        if self.stopped:
            return ""
        released = self._release(self._text.decode(self._window)[self._shown:] if self._window else "")
        self._window, self._settled, self._shown = [], 0, 0
        if self.stopped:
            return released
        released, self._held = released + self._held, ""
        return released

    def _append(self, token_id: int) -> str:
        """Add a token to the window and return the text that is certain now."""
        self._window.append(token_id)
        if token_id in self._text.byte_ids:  # a byte decides over its whole run, so wait for the run's end
            return ""
        decoded = self._text.decode(self._window)
        if decoded.endswith(REPLACEMENT):  # perhaps the first bytes of a character; earlier ones are certain
            fresh = decoded[self._shown:-1]
            self._shown = max(self._shown, len(decoded) - 1)
            return fresh
        fresh = decoded[self._shown:]
        self._slide(decoded)
        return fresh

    def _slide(self, decoded: str) -> None:
        """Keep only the tokens since the last settled point as context, as far as they have text of their own.

        A decoder may treat the start of a text differently (it strips a leading space), so the window's context must
        absorb that.
        """
        context = self._window[self._settled:]
        shown = self._text.decode(context)
        if shown and decoded.endswith(shown):
            self._window, self._shown = context, len(shown)
        else:
            self._shown = len(decoded)
        self._settled = len(self._window)

    def _release(self, fresh: str) -> str:
        """Pass text on, except for an end that may become a stop string; cut it where one is complete."""
        if not self._stop:
            return fresh
        pending = self._held + fresh
        cut = _first_stop(pending, self._stop)
        if cut is not None:
            self.stopped, self._held = True, ""
            return pending[:cut]
        keep = _stop_overlap(pending, self._stop)
        self._held = pending[len(pending) - keep:]
        return pending[:len(pending) - keep]


def _first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the stop string begins that is complete first, reading character by character; the longest on a tie."""
    found = [(index + len(stop), index) for stop in stops if (index := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _stop_overlap(text: str, stops: tuple[str, ...]) -> int:
    """Length of the longest end of text that begins a stop string."""
    longest = 0
    for stop in stops:
        for length in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:length]):
                longest = length
                break
    return longest
