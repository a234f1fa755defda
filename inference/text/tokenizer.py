"""Turns text into token ids and back with a model's own tokenizer, without torch or transformers."""

import functools
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile
from inference.artifacts.jsonfile import read_object_if_present
from inference.text.gguf_tokenizer import tokenizer_config_from_gguf, tokenizer_from_gguf

MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class TextTokenizer:
    """A loaded tokenizer. Safe to use from several threads.

    backend: the tokenizers.Tokenizer. vocab_size: tokens that it knows, added ones included.
    special_ids: ids of control tokens such as <|im_end|>. named_tokens: {"bos_token": "<s>", …} as far as they exist.
    """

    def __init__(self, backend: Tokenizer, named_tokens: dict[str, str]) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.named_tokens = named_tokens
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.special_strings = frozenset(token.content for token in added.values() if token.special)

    @classmethod
    def from_path(cls, path: Path) -> "TextTokenizer":
        """Load from a folder with tokenizer.json (or, lacking that, one .gguf file), or from a .gguf file.

        Raises ArtifactError.
        """
        if path.is_file():
            return cls._from_gguf(path)
        if not (path / "tokenizer.json").is_file():
            ggufs = sorted(path.glob("*.gguf"))
            if len(ggufs) == 1:
                return cls._from_gguf(ggufs[0])
        return cls(_load_json(path / "tokenizer.json"), _read_named_tokens(path))

    @classmethod
    def _from_gguf(cls, path: Path) -> "TextTokenizer":
        file = GgufFile(path)
        config = tokenizer_config_from_gguf(file)
        return cls(tokenizer_from_gguf(file), {key: config[key] for key in NAMED_TOKENS if key in config})

    @property
    def bos_token(self) -> str | None:
        return self.named_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.named_tokens.get("eos_token")

    @property
    def largest_id(self) -> int:
        """The largest id that encoding can give; the embedding must have more rows than that."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def token_id(self, token: str) -> int | None:
        """Return the id of exactly this token, or None."""
        token_id: int | None = self.backend.token_to_id(token)
        return token_id

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of text. Strings such as <|im_end|> in it become the control tokens that they name."""
        ids: list[int] = self.backend.encode(_well_formed(text), add_special_tokens=add_special_tokens).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text with the tokens that the model's own template adds; on several threads."""
        encodings = self.backend.encode_batch_fast([_well_formed(text) for text in texts], add_special_tokens=True)
        return [encoding.ids for encoding in encodings]

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of text in which no string is a control token: <|im_end|> is just its characters."""
        ids: list[int] = self._plain_backend.encode(_well_formed(text), add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""
        text: str = self.backend.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    @functools.cached_property
    def _plain_backend(self) -> Tokenizer:
        # A copy: the switch belongs to the tokenizer, and other threads encode with the first one meanwhile.
        backend = Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        return backend


def _well_formed(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can carry and UTF-8 can't."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not _is_utf8(text) else text


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _load_json(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ArtifactError(path.name, "is missing")
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise ArtifactError(path.name, f"is larger than {MAX_TOKENIZER_BYTES:,} bytes")
    try:
        return Tokenizer.from_file(str(path))
    except BaseException as error:
        # The library's panics derive from BaseException, so that they are told apart by name only.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ArtifactError(path.name, f"is not a tokenizer that can be loaded ({error})") from None
        raise


def _read_named_tokens(folder: Path) -> dict[str, str]:
    """Read the special tokens' names from tokenizer_config.json, else special_tokens_map.json."""
    merged = read_object_if_present(folder / "special_tokens_map.json") | {
        key: value for key, value in read_object_if_present(folder / "tokenizer_config.json").items() if value
    }
    named = {}
    for key in NAMED_TOKENS:
        value = merged.get(key)
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            named[key] = content
    return named
