"""How the tokenizer page cuts a text, held against the tokenizers library reading the models' own files."""

import itertools

import pytest
from django.test import Client
from tokenizers import Tokenizer

from registry.models import Version
from registry.selectors import version_folder
from registry.tokens import version_pieces
from webapp.catalog.tokenizing import CHINESE, ENGLISH

pytestmark = pytest.mark.django_db
TEXTS = ["", "Hello", "Hello  world,\n\tdef f(x): return 1234567", "你好 👩‍💻 <|im_end|> café ü", "\u0000 x", CHINESE]


def test_the_page_shows_the_tokenizers_own_tokens_and_counts_side_by_side(
        page: Client, demo_version: Version, embedding_version: Version) -> None:
    for version, text in itertools.product((demo_version, embedding_version), TEXTS):
        pieces = version_pieces(version=version, text=text)
        assert [piece.id for piece in pieces if piece.id is not None] == own_ids(version, text)
        assert "".join(piece.text for piece in pieces) == text
    shown = page.get("/catalog/tokenizer/", {"v": ["smollm2:1", "minilm:1"], "text": ENGLISH})
    counts = {column.version.model.name: (column.count, column.english, column.chinese)
              for column in shown.context["columns"]}
    for version in (demo_version, embedding_version):
        english, chinese = (len(own_ids(version, text)) for text in (ENGLISH, CHINESE))
        assert counts[version.model.name] == (english, english, chinese)


def own_ids(version: Version, text: str) -> list[int]:
    """The ids that the tokenizers library gives by itself."""
    own = Tokenizer.from_file(str(version_folder(version) / "tokenizer.json"))
    own.no_truncation()
    own.no_padding()
    ids: list[int] = own.encode(text, add_special_tokens=False).ids
    return ids


def test_a_long_text_is_cut_and_a_model_that_is_not_there_is_left_out(page: Client, demo_version: Version) -> None:
    shown = page.get("/catalog/tokenizer/", {"v": ["smollm2:1", "missing:1", "smollm2:x"], "text": "word " * 10_000})
    assert [str(column.version) for column in shown.context["columns"]] == ["smollm2:1"]
    assert shown.context["columns"][0].characters == 20_000
    assert "Only the first 20,000" in shown.content.decode()


def test_control_tokens_and_markup_are_shown_as_text(page: Client, demo_version: Version) -> None:
    shown = page.get("/catalog/tokenizer/", {"v": "smollm2:1", "text": "<|im_end|><script>", "fragment": "1"})
    assert "&lt;|im_end|&gt;" in shown.content.decode()
    assert "<script>" not in shown.content.decode()
    assert "a control token" in shown.content.decode()
