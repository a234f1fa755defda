"""Text of tokens as they come: always the pieces of the decoded whole, whatever the tokenizer's decoder does."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from inference.engine.detokenizer import REPLACEMENT, Detokenizer, TokenText
from inference.text.tokenizer import TextTokenizer
from tests.inference.engine.context_model import byte_tokenizer

SAMPLES = [
    "The quick brown fox doesn't jump. It's 42 °C; naïve café.", "今天天气很好，我们去公园散步。",
    "🦊 zum Wald 🌲🌲 👩‍👩‍👧‍👦 ❤️‍🔥",
    "def f(x):\n    return x + 1  # два слова\n\n", "العربية नमस्ते 한국어", "  two leading spaces",
    "\ufffd itself is a character",
]


@cache
def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(SAMPLES * 3, trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<|end|>", "<|pad|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens(["<tool>"])
    return tokenizer


@cache
def sentencepiece() -> Tokenizer:
    """The decoder of Llama 2 and Mistral: a leading space is stripped, unknown characters are runs of byte tokens."""
    words = ["▁", "▁The", "▁fox", "s", "▁日", "本", ".", "▁▁", "\n", "é", "▁it", "'"]
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    vocabulary |= {word: 259 + index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


@cache
def metaspace() -> Tokenizer:
    words = ["▁", "▁a", "b", "▁▁", "c▁d", "▁the"]
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


TOKENIZERS = {"byte_level": byte_level, "sentencepiece": sentencepiece, "metaspace": metaspace, "bytes": byte_tokenizer}


@cache
def token_text(name: str) -> TokenText:
    tokenizer = TOKENIZERS[name]()
    added = tokenizer.get_added_tokens_decoder()
    return TokenText(tokenizer, [token_id for token_id, token in added.items() if token.special])


def pieces(text: TokenText, ids: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], bool]:
    """What each token adds, the last one with everything that was held back; and whether a stop string ended it."""
    detokenizer = Detokenizer(text, stop)
    texts = []
    for index, token_id in enumerate(ids, start=1):
        texts.append(detokenizer.push(token_id, last=index == len(ids)))
        if detokenizer.stopped:
            break
    return texts, detokenizer.stopped


def cut_at_stop(whole: str, stop: tuple[str, ...]) -> tuple[str, bool]:
    """The slow twin: read character by character until the text ends with a stop string."""
    for end in range(len(whole) + 1):
        matches = [text for text in stop if whole[:end].endswith(text)]
        if matches:
            return whole[:end - max(map(len, matches))], True
    return whole, False


def ids_of(name: str) -> st.SearchStrategy[list[int]]:
    size = TOKENIZERS[name]().get_vocab_size(with_added_tokens=True)
    return st.lists(st.integers(0, size + 3), max_size=40)  # three ids that the tokenizer doesn't know


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_the_pieces_of_any_ids_are_the_decoded_whole(name, data):
    text, ids = token_text(name), data.draw(ids_of(name))
    whole = text.tokenizer.decode(ids, skip_special_tokens=True)
    texts, _ = pieces(text, ids)
    assert "".join(texts) == whole
    assert sum(piece.count(REPLACEMENT) for piece in texts) == whole.count(REPLACEMENT)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_stop_strings_end_the_text_as_if_read_character_by_character(name, data):
    text, ids = token_text(name), data.draw(ids_of(name))
    whole = text.tokenizer.decode(ids, skip_special_tokens=True)
    spans = st.tuples(st.integers(0, max(0, len(whole) - 1)), st.integers(1, 7)).map(lambda s: whole[s[0]:s[0] + s[1]])
    stop = tuple(filter(None, data.draw(st.lists(spans | st.text("ab .", min_size=1, max_size=3), max_size=3))))
    texts, stopped = pieces(text, ids, stop)
    assert ("".join(texts), stopped) == cut_at_stop(whole, stop)


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_piece_of_real_text_has_half_a_character(demo_chat_path: Path, sample):
    tokenizer = TextTokenizer.from_path(demo_chat_path)
    text = TokenText(tokenizer.backend, tokenizer.special_ids)
    ids = tokenizer.encode(sample, add_special_tokens=False)
    texts, _ = pieces(text, ids)
    assert "".join(texts) == sample
    assert sum(piece.count(REPLACEMENT) for piece in texts) == sample.count(REPLACEMENT)


def test_a_character_over_three_tokens_comes_with_the_third():
    text = token_text("bytes")
    ids = text.tokenizer.encode("a你b").ids
    assert pieces(text, ids)[0] == ["a", "", "", "你", "b"]


def test_half_a_character_at_the_end_comes_with_the_last_token():
    text = token_text("bytes")
    ids = text.tokenizer.encode("a你").ids[:-1]
    assert pieces(text, ids)[0] == ["a", "", REPLACEMENT]


def test_a_run_of_byte_tokens_waits_for_its_end():
    text = token_text("sentencepiece")
    fox, emoji = 261, [3 + byte for byte in "🦊".encode()]
    assert pieces(text, [fox, *emoji, fox])[0] == ["fox", "", "", "", "", "🦊 fox"]


def test_the_first_leading_space_is_stripped_and_no_other():
    text = token_text("sentencepiece")
    the, fox, end = 260, 261, 2
    assert pieces(text, [the, fox, end, fox])[0] == ["The", " fox", "", " fox"]
    assert pieces(text, [259, the, fox])[0] == ["", " The", " fox"]


STOP_CASES = [
    ("seven characters over three tokens", "tell me: STOP!!! now", ("STOP!!!",), "tell me: "),
    ("a stop string that begins another", "one END two", ("END two", "END"), "one "),
    ("a false start", "one EN, END", ("END",), "one EN, "),
    ("an overlapping false start", "aaab", ("aab",), "a"),
    ("the one that is complete first", "xabcd", ("abcd", "bc"), "xa"),
    ("never complete", "one EN", ("END",), "one EN"),
]


@pytest.mark.parametrize(("what", "written", "stop", "shown"), STOP_CASES, ids=[case[0] for case in STOP_CASES])
def test_stop_strings(what, written, stop, shown):
    for name in ("bytes", "byte_level"):
        text = token_text(name)
        texts, stopped = pieces(text, text.tokenizer.encode(written).ids, stop)
        assert "".join(texts) == shown
        assert stopped == (shown != written)


def test_a_stop_string_is_never_half_shown():
    text = token_text("bytes")
    detokenizer = Detokenizer(text, ("STOP",))
    assert [detokenizer.push(i) for i in text.tokenizer.encode("aSTXSTO").ids] == ["a", "", "", "STX", "", "", ""]
    assert detokenizer.finish() == "STO"
    assert detokenizer.finish() == ""


def test_an_end_id_adds_no_text_but_releases_what_was_held():
    text = token_text("bytes")
    detokenizer = Detokenizer(text, ("STOP",))
    for token_id in text.tokenizer.encode("aST").ids:
        detokenizer.push(token_id)
    assert detokenizer.push(text.tokenizer.encode("b").ids[0], silent=True, last=True) == "ST"


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_special_tokens_are_shown_when_they_are_not_skipped(name, data):
    text, ids = token_text(name), data.draw(ids_of(name))
    detokenizer = Detokenizer(text, skip_special_tokens=False)
    shown = "".join(detokenizer.push(token_id) for token_id in ids) + detokenizer.finish()
    assert shown == text.tokenizer.decode(ids, skip_special_tokens=False)


@given(written=st.text("añ你🦊 ", max_size=12), cut=st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_a_reply_completes_the_character_that_its_prompt_began(written, cut):
    text = token_text("bytes")
    ids = text.tokenizer.encode(written).ids
    prompt, output = ids[:cut], ids[cut:]
    detokenizer = Detokenizer(text, prompt_ids=prompt)
    shown = "".join(detokenizer.push(token_id) for token_id in output) + detokenizer.finish()
    if output:
        assert text.tokenizer.decode(prompt).rstrip(REPLACEMENT) + shown == written


def test_replacement_characters_of_the_prompt_are_not_told_again():
    text = token_text("bytes")
    for prompt in ("a\ufffd", "\ufffd\ufffd"):
        detokenizer = Detokenizer(text, prompt_ids=text.tokenizer.encode(prompt).ids)
        assert "".join(detokenizer.push(i) for i in text.tokenizer.encode("xy").ids) == "xy"
    broken = Detokenizer(text, prompt_ids=text.tokenizer.encode("a🦊").ids[:3])
    assert "".join(broken.push(i) for i in text.tokenizer.encode("xy").ids) == "xy"
