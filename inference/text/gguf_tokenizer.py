"""Rebuilds the tokenizer.json, tokenizer_config.json and chat template that a GGUF file's metadata stand for."""

from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile
from inference.text.gguf_sentencepiece import sentencepiece_bpe, sentencepiece_unigram
from inference.text.gguf_vocabulary import GgufVocabulary, strings

_LETTERS = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_SMALL = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = (_ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?[{_LETTERS}]*[{_SMALL}]+|[^\r\n\p{{L}}\p{{N}}]?[{_LETTERS}]+[{_SMALL}]*"
           r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip
_GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?[{_LETTERS}]*[{_SMALL}]+{_ENDINGS}?"
          rf"|[^\r\n\p{{L}}\p{{N}}]?[{_LETTERS}]+[{_SMALL}]*{_ENDINGS}?"
          r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip

# How a vocabulary's text was cut before its merges were learned, by tokenizer.ggml.pre. Source: the names and regular
# expressions of llama.cpp's llama-vocab.cpp, written for the regular expressions of the tokenizers library.
_PLAIN = ("default", "gpt-2", "gpt2", "mpt", "olmo", "jais")
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
_SPLITS = {
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "dbrx", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
    "tekken": _TEKKEN,
}
_WHOLE_WORDS_FIRST = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken")  # a word in the vocabulary
# is that token, whatever the merges say


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    """Return the tokenizer of a GGUF file: byte-level BPE or SentencePiece. Raises ArtifactError for other kinds."""
    kind = file.metadata.get("tokenizer.ggml.model")
    kinds = {"gpt2": _byte_level_bpe, "llama": sentencepiece_bpe, "t5": sentencepiece_unigram}
    if not isinstance(kind, str) or kind not in kinds:
        raise ArtifactError(file.path.name, f"the tokenizer kind {str(kind)[:40]!r} is not supported (known: "
                                            "byte-level BPE and SentencePiece)")
    return kinds[kind](GgufVocabulary.read(file))


def tokenizer_config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """Return the special tokens by name ("bos_token": "<|im_start|>"), as tokenizer_config.json holds them."""
    vocabulary = GgufVocabulary.read(file)
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for key, field in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        if (named := vocabulary.named(field)) is not None:
            config[f"{key}_token"] = named[0]
    return config


def chat_template_from_gguf(file: GgufFile) -> str | None:
    """Return the chat template in the metadata, or None."""
    template = file.metadata.get("tokenizer.chat_template")
    return template if isinstance(template, str) and template else None


def _byte_level_bpe(vocabulary: GgufVocabulary) -> Tokenizer:
    file = vocabulary.file
    pre = file.metadata.get("tokenizer.ggml.pre", "default")
    merges = [(merge[:cut], merge[cut + 1 :]) for merge in strings(file, "tokenizer.ggml.merges")
              if (cut := merge.find(" ", 1)) > 0]  # fmt: skip
    ids = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    try:
        tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=pre in _WHOLE_WORDS_FIRST))
    except Exception as error:
        raise ArtifactError(file.path.name, f"the tokenizer's merges do not fit its tokens ({error})") from None
    tokenizer.pre_tokenizer = _pre_tokenizer(str(pre), file.path.name)
    tokenizer.decoder = decoders.ByteLevel()
    vocabulary.add_marked_tokens(tokenizer)
    vocabulary.add_ends(tokenizer, bos=pre in _WHOLE_WORDS_FIRST, eos=False)
    return tokenizer


def _pre_tokenizer(pre: str, file: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in _SPLITS)
    if pre in _PLAIN:
        return byte_level
    if pre in _SINGLE_DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if pre in _SPLITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated"), byte_level])
    raise ArtifactError(file, f"the pre-tokenizer {pre[:40]!r} is not known, so text would be cut wrongly")
