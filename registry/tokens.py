"""Shows how a version's tokenizer cuts a text: each token with its id and the stretch of text that it stands for."""

from dataclasses import dataclass

from inference.artifacts.errors import ArtifactError
from inference.text.prompt import PromptBuilder
from inference.text.tokenizer import TextTokenizer
from registry.errors import BlobMissing
from registry.models import Version
from registry.selectors import version_folder


class TokenizerUnavailable(RuntimeError):
    """A version whose tokenizer can't be read here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A stretch of text. id is None for what no token stands for, as the spaces that some tokenizers drop.

    text is empty for a token that continues the character before it: a byte of one that has several.
    """

    text: str
    id: int | None = None
    special: bool = False


def version_pieces(*, version: Version, text: str) -> list[Piece]:
    """Cut text as the version's tokenizer does, without the tokens it would add around it.

    The texts of the pieces make up the text again. Raises TokenizerUnavailable.
    """
    tokenizer = version_tokenizer(version)
    encoding = tokenizer.backend.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)
    pieces: list[Piece] = []
    position = 0
    for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        if start > position:
            pieces.append(Piece(text=text[position:start]))
        special = token_id in tokenizer.special_ids
        pieces.append(Piece(text=text[max(start, position):end], id=token_id, special=special))
        position = max(position, end)
    if position < len(text):
        pieces.append(Piece(text=text[position:]))
    return pieces


def version_token_count(*, version: Version, text: str) -> int:
    """Return how many tokens the text is for this version. Raises TokenizerUnavailable."""
    return len(version_tokenizer(version).encode(text, add_special_tokens=False))


def version_tokenizer(version: Version) -> TextTokenizer:
    """Return the version's tokenizer; the last few stay loaded. Raises TokenizerUnavailable."""
    try:
        return PromptBuilder.from_path(version_folder(version)).tokenizer
    except (ArtifactError, BlobMissing) as error:
        raise TokenizerUnavailable(str(error)) from error
