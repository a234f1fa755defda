"""The tokenizer page's figures: one text cut by several models, and the same sentence in English and in Chinese."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from registry.tokens import Piece, TokenizerUnavailable, version_pieces, version_token_count

if TYPE_CHECKING:
    from registry.models import Version

COLOURS = 6
MAX_TEXT = 20_000
MAX_MODELS = 4

# Article 1 of the Universal Declaration of Human Rights, as the United Nations publish it.
ENGLISH = ("All human beings are born free and equal in dignity and rights. They are endowed with reason and "
           "conscience and should act towards one another in a spirit of brotherhood.")
CHINESE = "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。"


@dataclass(frozen=True, kw_only=True)
class Column:
    """How one version cuts the text. error: why it can't; samples: tokens of the English and the Chinese sentence."""

    version: "Version"
    pieces: list[tuple[Piece, int]] = field(default_factory=list)
    count: int = 0
    characters: int = 0
    english: int = 0
    chinese: int = 0
    error: str = ""

    @property
    def per_token(self) -> float | None:
        """Characters a token."""
        return self.characters / self.count if self.count else None

    @property
    def chinese_cost(self) -> float | None:
        """How many times the tokens of the English sentence its Chinese translation takes."""
        return self.chinese / self.english if self.english else None


def columns(*, versions: Iterable["Version"], text: str) -> list[Column]:
    """Return how each version cuts the text."""
    return [_column(version, text[:MAX_TEXT]) for version in versions]


def _column(version: "Version", text: str) -> Column:
    try:
        pieces = version_pieces(version=version, text=text)
        english = version_token_count(version=version, text=ENGLISH)
        chinese = version_token_count(version=version, text=CHINESE)
    except TokenizerUnavailable as error:
        return Column(version=version, error=str(error))
    shown: list[tuple[Piece, int]] = []
    count = 0
    for piece in pieces:
        shown.append((piece, count % COLOURS))
        count += piece.id is not None
    return Column(version=version, pieces=shown, count=count, characters=len(text), english=english, chinese=chinese)
