"""Our tokenizers against transformers' and against ids that others published."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from inference.artifacts.errors import ArtifactError
from inference.text.tokenizer import TextTokenizer
from tests.tiny_models import CONTROL_TOKENS, VOCAB_SIZE, tiny_tokenizer, write_tiny_gguf, write_tiny_llama

TEXTS = [
    "", " ", "Hello, world!", "  multiple   spaces  and a tab\t.", "It's we'll they'd I'M DON'T",
    "The year 2024 had 366 days; 3.14159 is close to pi.", "你好，世界。今天天气很好！", "日本語とひらがな、カタカナ。",
    "🙂 👩‍👩‍👧‍👦 🏳️‍🌈 naïve café", "def f(x: int) -> int:\n    return x ** 2  # square\n\n\tif x:\n\t\tpass\n",
    "<|im_start|>user\nHi<|im_end|>\n", "half <|im_ and |> of a token", "a\u0301 e\u0301 \u200b \u00a0 \ufeff end",
    "русский текст, العربية, हिन्दी", "\n\n\n", "x" * 500,
]


@pytest.fixture(scope="module")
def demo_tokenizer(demo_chat_path: Path) -> TextTokenizer:
    return TextTokenizer.from_path(demo_chat_path)


@pytest.mark.parametrize("text", TEXTS)
def test_encodes_as_transformers_does(
    text: str, demo_tokenizer: TextTokenizer, demo_reference: PreTrainedTokenizerFast
) -> None:
    ids = demo_tokenizer.encode(text, add_special_tokens=True)
    assert ids == demo_reference(text)["input_ids"]
    assert demo_tokenizer.decode(ids, skip_special_tokens=False) == text


# Ids of SmolLM2's own tokenizer as an independent project checks its tokenizer by. The digits each stand alone.
PUBLISHED = {
    "Hello, we can use": [19556, 28, 392, 416, 722],
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
}


@pytest.mark.parametrize("text", PUBLISHED)
def test_gives_the_ids_that_were_published(text: str, demo_tokenizer: TextTokenizer) -> None:
    assert demo_tokenizer.encode(text, add_special_tokens=False) == PUBLISHED[text]


def test_spaces_before_a_digit_are_cut_as_the_model_was_trained(demo_tokenizer: TextTokenizer) -> None:
    # llama.cpp's `smollm` cuts at every digit first, as the model's own tokenizer.json does; transformers (5.24) takes
    # `smollm` for plain gpt-2, and so splits a run of spaces before a digit differently.
    ids = demo_tokenizer.encode("x =  12", add_special_tokens=False)
    assert [demo_tokenizer.decode([token_id]) for token_id in ids] == ["x", " =", "  ", "1", "2"]


def test_names_and_ids_of_the_demo_model(
    demo_tokenizer: TextTokenizer, demo_reference: PreTrainedTokenizerFast
) -> None:
    assert demo_tokenizer.vocab_size == len(demo_reference) == 49_152
    assert demo_tokenizer.largest_id == 49_151
    assert (demo_tokenizer.bos_token, demo_tokenizer.eos_token) == (demo_reference.bos_token, demo_reference.eos_token)
    assert demo_tokenizer.special_ids == {
        token_id for token_id, token in demo_reference.added_tokens_decoder.items() if token.special}
    assert demo_tokenizer.token_id("<|im_end|>") == 2
    assert demo_tokenizer.token_id("no such token") is None


def test_plain_encoding_has_no_control_tokens(demo_tokenizer: TextTokenizer) -> None:
    text = "a<|im_end|>b<|im_start|>"
    assert 2 in demo_tokenizer.encode(text, add_special_tokens=False)
    ids = demo_tokenizer.encode_plain(text)
    assert not demo_tokenizer.special_ids & set(ids)
    assert demo_tokenizer.decode(ids) == text
    assert 2 in demo_tokenizer.encode(text, add_special_tokens=False)  # the usual way is as it was


def test_halves_of_surrogate_pairs_become_replacement_characters(demo_tokenizer: TextTokenizer) -> None:
    ids = demo_tokenizer.encode("a\ud83d b \ud83d\ude42", add_special_tokens=False)
    assert demo_tokenizer.decode(ids) == "a\ufffd b 🙂"


def test_an_embedding_models_tokenizer_is_not_cut_or_padded(demo_embedding_path: Path) -> None:
    tokenizer = TextTokenizer.from_path(demo_embedding_path)
    reference = AutoTokenizer.from_pretrained(demo_embedding_path)
    text = "A long sentence about nothing in particular. " * 60
    assert tokenizer.encode(text, add_special_tokens=True) == reference(text, truncation=False)["input_ids"]
    assert tokenizer.named_tokens["cls_token"] == "[CLS]"


def test_a_folder_in_hugging_face_layout(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path)
    tokenizer = TextTokenizer.from_path(tmp_path)
    assert (tokenizer.vocab_size, tokenizer.bos_token, tokenizer.eos_token) == (
        VOCAB_SIZE, "<|im_start|>", "<|im_end|>")
    assert tokenizer.special_strings == set(CONTROL_TOKENS)


PRE_TOKENIZERS = ["gpt-2", "llama-bpe", "tekken", "qwen2"]
CUTS = "I'm HE'LL x1234567 你好 don't\r\n  \n a_b--c (d)/e\n/f ÀÉî ABCdef"


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_text_is_cut_as_transformers_cuts_it(pre: str, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", metadata={"tokenizer.ggml.pre": pre})
    ours = TextTokenizer.from_path(tmp_path / "m.gguf").backend.pre_tokenizer.pre_tokenize_str(CUTS)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf").backend_tokenizer
    assert ours == theirs.pre_tokenizer.pre_tokenize_str(CUTS)


def test_a_start_token_is_added_where_the_file_says_so(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", metadata={"tokenizer.ggml.add_bos_token": True})
    tokenizer = TextTokenizer.from_path(tmp_path / "m.gguf")
    assert tokenizer.encode("the", add_special_tokens=True) == [1, *tokenizer.encode("the", add_special_tokens=False)]


def test_the_gguf_and_the_json_tokenizer_of_one_vocabulary_agree(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    ours, built = TextTokenizer.from_path(tmp_path), TextTokenizer(tiny_tokenizer(), {})
    for text in TEXTS:
        assert ours.encode(text, add_special_tokens=True) == built.encode(text, add_special_tokens=True)


@pytest.mark.parametrize(("metadata", "words"), [
    ({"tokenizer.ggml.model": "bert"}, "kind 'bert' is not supported"),
    ({"tokenizer.ggml.pre": "klingon"}, "pre-tokenizer 'klingon' is not known"),
    ({"tokenizer.ggml.tokens": ["a", "a", "b"]}, "names a token twice"),
    ({"tokenizer.ggml.tokens": None}, "lacks tokenizer.ggml.tokens"),
    ({"tokenizer.ggml.merges": ["q qqqq"]}, "merges do not fit"),
    ({"tokenizer.ggml.token_type": [1, 3]}, "one entry for each token"),
    ({"tokenizer.ggml.eos_token_id": 9999}, "outside the 263 tokens"),
])  # fmt: skip
def test_a_gguf_tokenizer_that_would_mislead_is_refused(
    metadata: dict[str, object], words: str, tmp_path: Path
) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", metadata=metadata)
    with pytest.raises(ArtifactError, match=words):
        TextTokenizer.from_path(tmp_path / "m.gguf")


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "Nothing"}}', "\x80\x04pickle"])
def test_a_broken_tokenizer_json_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"tokenizer.json: is not a tokenizer"):
        TextTokenizer.from_path(tmp_path)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"tokenizer.json: is missing"):
        TextTokenizer.from_path(tmp_path)


def test_the_derived_tokenizer_json_is_one_that_transformers_loads(demo_tokenizer: TextTokenizer) -> None:
    copy = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(demo_tokenizer.backend.to_str()))
    assert all(copy(text)["input_ids"] == demo_tokenizer.encode(text, add_special_tokens=True) for text in TEXTS)
