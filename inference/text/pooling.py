"""Builds the token ids of texts to embed, with the model's own prompts and limits, and without torch."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.artifacts.jsonfile import read_object_if_present
from inference.encoders.config import encoder_spec_from_config, is_encoder
from inference.encoders.sentence import DECODER_TOKENS, SentenceSpec, read_sentence_spec
from inference.text.tokenizer import TextTokenizer

CACHED_TEXTS = 8


class UnknownPromptError(ValueError):
    """A prompt's name that the model doesn't have; the message lists those that it has."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingInputs:
    """What an Embed frame wants: ids of each text, the instruction's share of them, and how many tokens were cut."""

    ids: list[list[int]]
    prompt_tokens: int = 0
    cut_tokens: int = 0


class EmbeddingText:
    """A model's tokenizer with what its files say of texts. Safe to use from several threads.

    max_tokens: most tokens of one text, special ones included.
    """

    def __init__(self, tokenizer: TextTokenizer, spec: SentenceSpec, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.spec = spec
        self.max_tokens = max_tokens
        self._ending = _ending(tokenizer)

    @classmethod
    def from_path(cls, path: Path) -> "EmbeddingText":
        """Return the texts' side of a model's folder; the last few stay loaded. Raises ArtifactError."""
        resolved = path.resolve()
        return _load(resolved, resolved.stat().st_mtime_ns if resolved.exists() else 0)

    @property
    def prompt_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.spec.prompts)

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, prompt_name: str | None = None,
               max_tokens: int | None = None) -> EmbeddingInputs:
        """Return the ids of texts, each behind its instruction and cut to the limit; the ending stays.

        prompt: written before each text as it stands; prompt_name: one of the model's own; without both, the default
        of the model. max_tokens: a lower limit than the model's, such as a deployment's. Raises UnknownPromptError.
        """
        limit = min(self.max_tokens, max_tokens or self.max_tokens)
        before = self._prompt(prompt, prompt_name)
        encoded = self.tokenizer.encode_batch([self._lowered(before + text) for text in texts])
        ids = [self.cut(one, limit) for one in encoded]
        skip = self._prompt_tokens(before) if before and not self.spec.include_prompt else 0
        return EmbeddingInputs(ids=ids, prompt_tokens=skip,
                               cut_tokens=sum(map(len, encoded)) - sum(map(len, ids)))

    def cut(self, ids: list[int], limit: int) -> list[int]:
        """Cut a text's ids to a limit, from the end of its own tokens; those that close every text stay."""
        if len(ids) <= limit:
            return ids
        kept = max(0, limit - self._ending)
        return ids[:kept] + ids[len(ids) - min(self._ending, limit - kept):]

    def _prompt(self, prompt: str | None, name: str | None) -> str:
        if prompt is not None:
            return prompt
        try:
            return self.spec.prompt(name)
        except KeyError:
            known = ", ".join(self.prompt_names) or "none"
            raise UnknownPromptError(f"this model has no prompt {str(name)[:60]!r}; it has: {known}") from None

    def _prompt_tokens(self, prompt: str) -> int:
        """Tokens of a prompt by itself, without those that close a text."""
        return len(self.tokenizer.encode(self._lowered(prompt), add_special_tokens=True)) - self._ending

    def _lowered(self, text: str) -> str:
        return text.lower() if self.spec.lower_case else text


def _ending(tokenizer: TextTokenizer) -> int:
    """How many tokens the model's template puts behind a text."""
    mask: list[int] = tokenizer.backend.encode("a", add_special_tokens=True).special_tokens_mask
    count = 0
    while count < len(mask) and mask[-1 - count]:
        count += 1
    return count


def longest_text(folder: Path, spec: SentenceSpec) -> int:
    """Return the most tokens that the model takes of one text. Raises ArtifactError."""
    config: dict[str, Any] = read_object_if_present(folder / "config.json")
    if is_encoder(config):
        positions = encoder_spec_from_config(config).max_position
    else:
        given = config.get("max_position_embeddings")
        positions = min(given, spec.max_tokens or DECODER_TOKENS) if isinstance(given, int) and given > 0 else 512
    return min(positions, spec.max_tokens or positions)


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _load(path: Path, _modified: int) -> EmbeddingText:
    spec = read_sentence_spec(path)
    return EmbeddingText(TextTokenizer.from_path(path), spec, longest_text(path, spec))
