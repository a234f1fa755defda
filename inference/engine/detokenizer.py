"""Turns a request's tokens into text as they come.

tokenizers' own DecodeStream doesn't do: it drops half a character at the end, and for decoders with byte fallback its
pieces often differ from the decoded whole, or it raises.
"""

import json
import re
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer

from inference.engine.stop_strings import StopStrings

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MOST_BYTES = 4  # of a character in UTF-8
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class TokenText:
    """What the text of tokens depends on, read once for an engine: the tokenizer and its special and byte tokens.

    vocab_size: one past the last id that the tokenizer knows. shown_ids: those that have text when special tokens are
    skipped, so that a special or unknown id doesn't even end a run of byte tokens.
    """

    def __init__(self, tokenizer: Tokenizer, special_ids: Iterable[int]) -> None:
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.special_ids = frozenset(special_ids)
        self.shown_ids = frozenset(vocabulary.values()) - self.special_ids
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
    beginning of a stop string. prompt_ids: when they end within a character, the reply's first text completes it.
    include_stop: the stop string is part of the text. skip_special_tokens: control tokens aren't.
    """

    def __init__(self, text: TokenText, stop: tuple[str, ...] = (), *, prompt_ids: Sequence[int] = (),
                 include_stop: bool = False, skip_special_tokens: bool = True) -> None:
        self._text = text
        self._stop = StopStrings(stop, include=include_stop)
        self._shown_ids = text.shown_ids if skip_special_tokens else text.shown_ids | text.special_ids
        self._hidden_ids = text.special_ids if stop and skip_special_tokens else frozenset[int]()
        self._window: list[int] = []  # tokens before the unsettled ones, for context, and the unsettled ones
        self._settled = 0  # tokens of the window whose text can't change any more
        self._shown = 0  # characters of the window's text that have left the window
        self._broken = 0  # replacement characters at the window's start that belong to the prompt
        self._continue(prompt_ids)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has been completed; then there is no more text."""
        return self._stop.stopped

    def push(self, token_id: int, *, silent: bool = False, last: bool = False, may_stop: bool = True) -> str:
        """The text that a further token adds.

        silent: the token itself has none, because it is an end id. last: nothing is held back any more.
        may_stop: whether a stop string may end the text here.
        """
        if self.stopped:
            return ""
        if not silent and token_id in self._hidden_ids:
            released = self._stop.push(self._text.decode([token_id]), hidden=True, may_stop=may_stop)
        else:
            fresh = "" if silent or token_id not in self._shown_ids else self._append(token_id)
            released = self._stop.push(fresh, may_stop=may_stop)
        return released + self.finish(may_stop=may_stop) if last and not self.stopped else released

    def finish(self, *, may_stop: bool = True) -> str:
        """Release what is still held back, because nothing more will come."""
        if self.stopped:
            return ""
        fresh = self._text.decode(self._window)[self._shown:] if self._window else ""
        self._window, self._settled, self._shown = [], 0, 0
        released = self._stop.push(self._without_broken(fresh), may_stop=may_stop)
        return released if self.stopped else released + self._stop.finish()

    def _continue(self, prompt_ids: Sequence[int]) -> None:
        """Take the prompt's last tokens as context if they may be the first bytes of a character."""
        tail = list(prompt_ids[-MOST_BYTES:])
        if not tail or not self._text.shown_ids.issuperset(tail):
            return
        decoded = self._text.decode(tail)
        self._broken = len(decoded) - len(decoded.rstrip(REPLACEMENT))
        if self._broken:
            self._window, self._shown = tail, len(decoded) - self._broken

    def _without_broken(self, fresh: str) -> str:
        """Drop replacement characters that the prompt ended with, now that they haven't become a character."""
        if not self._broken or not fresh:
            return fresh
        start = fresh[:self._broken]
        dropped = len(start) - len(start.lstrip(REPLACEMENT))
        self._broken = self._broken - dropped if dropped == len(fresh) else 0
        return fresh[dropped:]

    def _append(self, token_id: int) -> str:
        """Add a token to the window and return the text that is certain now."""
        self._window.append(token_id)
        if token_id in self._text.byte_ids:  # a byte decides over its whole run, so wait for the run's end
            return ""
        decoded = self._text.decode(self._window)
        if decoded.endswith(REPLACEMENT):  # perhaps the first bytes of a character; earlier ones are certain
            fresh = decoded[self._shown:-1]
            self._shown = max(self._shown, len(decoded) - 1)
            return self._without_broken(fresh)
        fresh = decoded[self._shown:]
        self._slide(decoded)
        return self._without_broken(fresh)

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
