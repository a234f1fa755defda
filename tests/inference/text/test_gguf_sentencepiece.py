"""SentencePiece vocabularies in GGUF files against the sentencepiece library that trained them."""

import io
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece

from inference.artifacts.errors import ArtifactError
from inference.evaluate import part_text
from inference.text.tokenizer import TextTokenizer

TEXTS = (
    "Hello world", " two  spaces   here ", "Ünïcödé 中文 😀", "def f(x):\n\treturn x + 1\n", "a", "", " ",
    "The Rabbit actually TOOK A WATCH OUT OF ITS WAISTCOAT-POCKET, and looked at it", "aaaa aaa aa a", "\n\n\n",
    "1234567.89",
)  # fmt: skip


def trained(kind: str, **options: Any) -> sentencepiece.SentencePieceProcessor:
    """Return a tiny model, trained here on the evaluation's prose and code without changing any character."""
    model = io.BytesIO()
    sentences = [line for part in ("prose", "code") for line in part_text(part).splitlines() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=500, model_type=kind,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=1,
        **({"byte_fallback": True} | options),
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind_of(model: sentencepiece.SentencePieceProcessor, token_id: int) -> gguf.TokenType:
    """As _create_vocab_sentencepiece of llama.cpp's converter sorts them."""
    if model.IsUnknown(token_id):
        return gguf.TokenType.UNKNOWN
    if model.IsControl(token_id):
        return gguf.TokenType.CONTROL
    if model.IsByte(token_id):
        return gguf.TokenType.BYTE
    return gguf.TokenType.UNUSED if model.IsUnused(token_id) else gguf.TokenType.NORMAL


def write_vocabulary(path: Path, model: sentencepiece.SentencePieceProcessor, kind: str, *, architecture: str = "llama",
                     fields: dict[str, Any] | None = None) -> None:  # fmt: skip
    writer = gguf.GGUFWriter(path, architecture)
    count = model.vocab_size()
    writer.add_tokenizer_model(kind)
    writer.add_token_list([model.IdToPiece(token_id) for token_id in range(count)])
    writer.add_token_scores([model.GetScore(token_id) for token_id in range(count)])
    writer.add_token_types([kind_of(model, token_id) for token_id in range(count)])
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
    for key, value in (fields or {}).items():
        writer.add_bool(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def bpe() -> sentencepiece.SentencePieceProcessor:
    return trained("bpe")


def test_bpe_cuts_texts_as_the_library_does(bpe: sentencepiece.SentencePieceProcessor, tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "m.gguf", bpe, "llama")
    tokenizer = TextTokenizer.from_path(tmp_path / "m.gguf")
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    for text in (*TEXTS, part_text("prose"), part_text("chinese")):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == bpe.encode(text), text
        assert tokenizer.decode(ids) == bpe.decode(ids) == text
        assert tokenizer.encode(text, add_special_tokens=True) == [bpe.bos_id(), *ids]


def test_a_file_may_want_no_space_before_the_text_and_no_first_token(
    bpe: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    fields = {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False,
              "tokenizer.ggml.add_eos_token": True}  # fmt: skip
    write_vocabulary(tmp_path / "m.gguf", bpe, "llama", fields=fields)
    tokenizer = TextTokenizer.from_path(tmp_path / "m.gguf")
    without = trained("bpe", add_dummy_prefix=False)
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=True)
        assert tokenizer.decode(ids) == text
        assert ids[-1] == bpe.eos_id()
    assert tokenizer.encode(" the", add_special_tokens=False) == bpe.encode("the")
    assert without.encode("the") != without.encode(" the")  # what the setting is about


def test_gemma_takes_texts_as_they_are(tmp_path: Path) -> None:
    model = trained("bpe", add_dummy_prefix=False)
    write_vocabulary(tmp_path / "m.gguf", model, "llama", architecture="gemma2")
    tokenizer = TextTokenizer.from_path(tmp_path / "m.gguf")
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == model.encode(text), text
        assert tokenizer.decode(ids) == text


def test_control_tokens_are_whole_and_can_be_kept_from_text(
    bpe: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    write_vocabulary(tmp_path / "m.gguf", bpe, "llama")
    tokenizer = TextTokenizer.from_path(tmp_path / "m.gguf")
    assert bpe.eos_id() in tokenizer.encode("one</s>", add_special_tokens=False)
    assert bpe.eos_id() not in tokenizer.encode_plain("one</s>")
    assert tokenizer.special_ids == {bpe.bos_id(), bpe.eos_id()}


def test_unigram_cuts_texts_as_the_library_does(tmp_path: Path) -> None:
    model = trained("unigram", byte_fallback=False)
    write_vocabulary(tmp_path / "m.gguf", model, "t5")
    tokenizer = TextTokenizer.from_path(tmp_path / "m.gguf")
    for text in ("Hello world", "The Rabbit actually TOOK A WATCH OUT", part_text("prose").replace("\n", " ")):
        ids = model.encode(text)
        assert tokenizer.encode(text, add_special_tokens=True) == [*ids, model.eos_id()]


@pytest.mark.parametrize(("key", "value", "words"), [
    ("tokenizer.ggml.scores", None, "scores does not have one number for each token"),
    ("tokenizer.ggml.token_type", [1, 2], "token_type does not have one entry for each token"),
    ("tokenizer.ggml.bos_token_id", 9999, "bos_token_id is 9999, outside the 500 tokens"),
    ("tokenizer.ggml.bos_token_id", None, "bos_token_id is missing, but texts get one"),
    ("tokenizer.ggml.tokens", ["a" * 2000, *map(str, range(499))], "token 0 has 2,000 characters"),
])  # fmt: skip
def test_a_vocabulary_that_would_mislead_is_refused(
    key: str, value: Any, words: str, bpe: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    from inference.artifacts.gguf import GgufFile
    from inference.text.gguf_tokenizer import tokenizer_from_gguf

    write_vocabulary(tmp_path / "m.gguf", bpe, "llama")
    file = GgufFile(tmp_path / "m.gguf")
    file.metadata[key] = value
    if key == "tokenizer.ggml.tokens":
        file.metadata["tokenizer.ggml.token_type"] = None
    if value is None:
        del file.metadata[key]
    with pytest.raises(ArtifactError, match=words):
        tokenizer_from_gguf(file)
