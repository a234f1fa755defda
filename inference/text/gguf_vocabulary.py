"""The vocabulary in a GGUF file's metadata: tokens, their kinds and scores, special ids, each checked before use."""

from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, processors

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # values of tokenizer.ggml.token_type


@dataclass(frozen=True)
class GgufVocabulary:
    """tokens: by id. kinds: one of the values above for each token, or None when the file doesn't say."""

    file: GgufFile
    tokens: list[str]
    kinds: list[int] | None

    @classmethod
    def read(cls, file: GgufFile) -> "GgufVocabulary":
        """Return the file's vocabulary. Raises ArtifactError."""
        tokens = strings(file, "tokenizer.ggml.tokens")
        if len(set(tokens)) != len(tokens):
            raise ArtifactError(file.path.name, "tokenizer.ggml.tokens names a token twice")
        kinds = file.metadata.get("tokenizer.ggml.token_type")
        if kinds is not None and (not isinstance(kinds, list) or len(kinds) != len(tokens)):
            raise ArtifactError(file.path.name, "tokenizer.ggml.token_type does not have one entry for each token")
        return cls(file, tokens, kinds)

    def scores(self) -> list[float]:
        """Return how good each token is, higher is better. Raises ArtifactError."""
        scores = self.file.metadata.get("tokenizer.ggml.scores")
        if not isinstance(scores, list) or len(scores) != len(self.tokens) \
                or not all(isinstance(score, (int, float)) for score in scores):
            raise ArtifactError(self.file.path.name, "tokenizer.ggml.scores does not have one number for each token")
        return scores

    def named(self, field: str) -> tuple[str, int] | None:
        """Return token and id of a special token ("bos", "eos", "unknown", "padding"), or None."""
        key = f"tokenizer.ggml.{field}_token_id"
        token_id = self.file.metadata.get(key)
        if token_id is None:
            return None
        if not isinstance(token_id, int) or not 0 <= token_id < len(self.tokens):
            raise ArtifactError(self.file.path.name, f"{key} is {str(token_id)[:40]}, outside the "
                                                     f"{len(self.tokens):,} tokens")
        return self.tokens[token_id], token_id

    def add_marked_tokens(self, tokenizer: Tokenizer) -> None:
        """Make the tokens that the file marks as control special, and those marked as user-defined whole."""
        if self.kinds is None:
            return
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)
                                      for token, kind in zip(self.tokens, self.kinds, strict=True) if kind == CONTROL])
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)
                              for token, kind in zip(self.tokens, self.kinds, strict=True) if kind == USER_DEFINED])

    def add_ends(self, tokenizer: Tokenizer, *, bos: bool, eos: bool) -> None:
        """Put the first or last token around a text, as the file says or, where it doesn't, as bos and eos say."""
        parts = ["$A"]
        named: list[tuple[str, int]] = []
        for field, default in (("bos", bos), ("eos", eos)):
            if not self.file.metadata.get(f"tokenizer.ggml.add_{field}_token", default):
                continue
            token = self.named(field)
            if token is None:
                raise ArtifactError(self.file.path.name, f"tokenizer.ggml.{field}_token_id is missing, but texts get "
                                                         "one")
            named.append(token)
            parts = [token[0], *parts] if field == "bos" else [*parts, token[0]]
        if named:
            pair: list[Any] = [*parts, *("$B:1" if part == "$A" else part for part in parts)]
            tokenizer.post_processor = processors.TemplateProcessing(single=parts, pair=pair, special_tokens=named)


def strings(file: GgufFile, key: str) -> list[str]:
    """Return a list of strings in the metadata. Raises ArtifactError."""
    value = file.metadata.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ArtifactError(file.path.name, f"lacks {key}, or it is not a list of strings")
    return value
