"""Log-probabilities as OpenAI's clients read them: tokens as text and bytes."""

from collections.abc import Iterable
from typing import Any

import msgspec

from inference.text.token_bytes import token_bytes
from inference.text.tokenizer import TextTokenizer
from webapp.serving.streams import StreamEntry

NEVER = -9999.0  # OpenAI's way to write minus infinity, which JSON can't


class _Scores(msgspec.Struct):
    """inference.protocol.TokenLogprobs after JSON, where an infinite number is null."""

    token_id: int
    logprob: float | None
    top: dict[int, float | None]


_decoder = msgspec.json.Decoder(_Scores)


def chat_logprobs(entries: Iterable[StreamEntry], tokenizer: TextTokenizer) -> list[dict[str, Any]]:
    """The `content` of a chat choice's logprobs, one for each token that has some."""
    found = []
    for entry in entries:
        if entry.logprobs:
            scores = _decoder.decode(entry.logprobs)
            tops = [_token(tokenizer, token_id, value) for token_id, value in scores.top.items()]
            found.append({**_token(tokenizer, scores.token_id, scores.logprob), "top_logprobs": tops})
    return found


def _token(tokenizer: TextTokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    raw = token_bytes(tokenizer, token_id)
    return {"token": raw.decode("utf-8", "replace"), "logprob": NEVER if logprob is None else logprob,
            "bytes": list(raw)}


class CompletionLogprobs:
    """The logprobs of one completion: four lists, with offsets into its text."""

    def __init__(self) -> None:
        self._offset = 0

    def of(self, entries: Iterable[StreamEntry], tokenizer: TextTokenizer) -> dict[str, list[Any]]:
        """Those of the next tokens."""
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for entry in entries:
            if not entry.logprobs:
                continue
            scores = _decoder.decode(entry.logprobs)
            tops = {_token(tokenizer, token_id, None)["token"]: NEVER if value is None else value
                    for token_id, value in scores.top.items()}
            row = _token(tokenizer, scores.token_id, scores.logprob)
            for name, value in (("tokens", row["token"]), ("token_logprobs", row["logprob"]), ("top_logprobs", tops),
                                ("text_offset", self._offset)):
                found[name].append(value)
            self._offset += len(entry.text)
        return found
