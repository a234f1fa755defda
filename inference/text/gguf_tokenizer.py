"""Rebuilds the tokenizer.json, tokenizer_config.json and chat template that a GGUF file's metadata stand for."""

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from inference.artifacts.errors import ArtifactError
from inference.artifacts.gguf import GgufFile

CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type

_LETTERS = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_SMALL = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = (_ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?[{_LETTERS}]*[{_SMALL}]+|[^\r\n\p{{L}}\p{{N}}]?[{_LETTERS}]+[{_SMALL}]*"
           r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip

# How a vocabulary's text was cut before its merges were learned, by tokenizer.ggml.pre. Source: the names and regular
# expressions of llama.cpp's llama-vocab.cpp, written for the regular expressions of the tokenizers library.
_PLAIN = ("default", "gpt-2", "gpt2", "mpt", "olmo", "jais")
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
_SPLITS = {
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "dbrx", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
    "tekken": _TEKKEN,
}
_WHOLE_WORDS_FIRST = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken")  # a word in the vocabulary
# is that token, whatever the merges say


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    """Return the tokenizer of a GGUF file with a byte-level BPE vocabulary. Raises ArtifactError for other kinds."""
    name, metadata = file.path.name, file.metadata
    if (kind := metadata.get("tokenizer.ggml.model")) != "gpt2":
        raise ArtifactError(name, f"the tokenizer kind {str(kind)[:40]!r} is not supported (known: byte-level BPE)")
    tokens = _strings(file, "tokenizer.ggml.tokens")
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ArtifactError(name, "tokenizer.ggml.tokens names a token twice")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    merges = [(merge[:cut], merge[cut + 1 :]) for merge in _strings(file, "tokenizer.ggml.merges")
              if (cut := merge.find(" ", 1)) > 0]  # fmt: skip
    try:
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre in _WHOLE_WORDS_FIRST))
    except Exception as error:
        raise ArtifactError(name, f"the tokenizer's merges do not fit its tokens ({error})") from None
    tokenizer.pre_tokenizer = _pre_tokenizer(str(pre), name)
    tokenizer.decoder = decoders.ByteLevel()
    _add_marked_tokens(tokenizer, tokens, metadata.get("tokenizer.ggml.token_type"), name)
    if metadata.get("tokenizer.ggml.add_bos_token", pre in _WHOLE_WORDS_FIRST):
        _add_bos(tokenizer, tokens, metadata.get("tokenizer.ggml.bos_token_id"), name)
    return tokenizer


def tokenizer_config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """Return the special tokens by name ("bos_token": "<|im_start|>"), as tokenizer_config.json holds them."""
    tokens = _strings(file, "tokenizer.ggml.tokens")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for key, field in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = file.metadata.get(f"tokenizer.ggml.{field}_token_id")
        if token_id is not None:
            config[f"{key}_token"] = _token(tokens, token_id, f"tokenizer.ggml.{field}_token_id", file.path.name)
    return config


def chat_template_from_gguf(file: GgufFile) -> str | None:
    """Return the chat template in the metadata, or None."""
    template = file.metadata.get("tokenizer.chat_template")
    return template if isinstance(template, str) and template else None


def _strings(file: GgufFile, key: str) -> list[str]:
    value = file.metadata.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ArtifactError(file.path.name, f"lacks {key}, or it is not a list of strings")
    return value


def _token(tokens: list[str], token_id: Any, key: str, file: str) -> str:
    if not isinstance(token_id, int) or not 0 <= token_id < len(tokens):
        raise ArtifactError(file, f"{key} is {str(token_id)[:40]}, outside the {len(tokens):,} tokens")
    return tokens[token_id]


def _pre_tokenizer(pre: str, file: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in _SPLITS)
    if pre in _PLAIN:
        return byte_level
    if pre in _SINGLE_DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if pre in _SPLITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated"), byte_level])
    raise ArtifactError(file, f"the pre-tokenizer {pre[:40]!r} is not known, so text would be cut wrongly")


def _add_marked_tokens(tokenizer: Tokenizer, tokens: list[str], types: Any, file: str) -> None:
    """Make the tokens that the file marks as control special, and those marked as user-defined whole."""
    if types is None:
        return
    if not isinstance(types, list) or len(types) != len(tokens):
        raise ArtifactError(file, "tokenizer.ggml.token_type does not have one entry for each token")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)
                                  for token, kind in zip(tokens, types, strict=True) if kind == CONTROL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)
                          for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED])


def _add_bos(tokenizer: Tokenizer, tokens: list[str], bos_id: Any, file: str) -> None:
    bos = _token(tokens, bos_id, "tokenizer.ggml.bos_token_id", file)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A"], pair=[bos, "$A", bos, "$B:1"], special_tokens=[(bos, bos_id)]
    )
