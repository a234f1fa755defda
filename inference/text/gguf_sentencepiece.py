"""Rebuilds SentencePiece tokenizers from GGUF metadata: BPE by scores with bytes to fall back on, and Unigram.

They cut texts as the sentencepiece library and llama.cpp do.
"""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from inference.artifacts.errors import ArtifactError
from inference.text.gguf_vocabulary import NORMAL, GgufVocabulary, strings

SPACE = "▁"
MAX_PIECE_CHARS = 1000
GEMMAS = ("gemma", "gemma2", "gemma3")


def sentencepiece_bpe(vocabulary: GgufVocabulary) -> Tokenizer:
    """Return the tokenizer of a file whose tokenizer.ggml.model is "llama". Raises ArtifactError."""
    metadata, file = vocabulary.file.metadata, vocabulary.file.path.name
    gemma = metadata.get("general.architecture") in GEMMAS
    tokens = [_spelled(token) for token in vocabulary.tokens] if gemma else vocabulary.tokens
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        raise ArtifactError(file, "tokenizer.ggml.tokens names a run of spaces twice")
    unknown = vocabulary.named("unknown")
    try:
        model = models.BPE(ids, _merges(vocabulary, tokens, ids, in_order=gemma), fuse_unk=True, byte_fallback=True,
                           unk_token=unknown[0] if unknown else None)
    except Exception as error:
        raise ArtifactError(file, f"the tokenizer's merges do not fit its tokens ({error})") from None
    tokenizer = Tokenizer(model)
    prefix = not gemma and metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
    _set_spaces(tokenizer, prefix=prefix)
    vocabulary.add_marked_tokens(tokenizer)
    vocabulary.add_ends(tokenizer, bos=True, eos=False)
    return tokenizer


def sentencepiece_unigram(vocabulary: GgufVocabulary) -> Tokenizer:
    """Return the tokenizer of a file whose tokenizer.ggml.model is "t5". Raises ArtifactError."""
    unknown = vocabulary.named("unknown")
    pieces = list(zip(vocabulary.tokens, map(float, vocabulary.scores()), strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unknown[1] if unknown else None, byte_fallback=False))
    charsmap = vocabulary.file.metadata.get("tokenizer.ggml.precompiled_charsmap")
    if charsmap is not None:
        try:
            tokenizer.normalizer = normalizers.Precompiled(bytes(value & 255 for value in charsmap))
        except Exception as error:
            raise ArtifactError(vocabulary.file.path.name, "tokenizer.ggml.precompiled_charsmap can't be read "
                                                           f"({error})") from None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    vocabulary.add_marked_tokens(tokenizer)
    vocabulary.add_ends(tokenizer, bos=False, eos=True)
    return tokenizer


def _spelled(token: str) -> str:
    """Gemma's files spell runs of spaces as spaces, other tokens with the visible sign."""
    return SPACE * len(token) if token and not token.strip(" ") else token


def _set_spaces(tokenizer: Tokenizer, *, prefix: bool) -> None:
    """Make spaces visible and undo it when decoding. prefix: one more before each stretch of text, like llama.cpp."""
    replace = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if prefix else replace
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        steps.append(decoders.Strip(content=" ", left=1))
    tokenizer.decoder = decoders.Sequence(steps)


def _merges(
    vocabulary: GgufVocabulary, tokens: list[str], ids: dict[str, int], *, in_order: bool
) -> list[tuple[str, str]]:
    """Return the file's merges, or every pair of tokens that makes a third, the best first.

    SentencePiece joins whichever neighbours make the piece with the best score. in_order: earlier tokens are better,
    whatever their scores.
    """
    if "tokenizer.ggml.merges" in vocabulary.file.metadata:
        return [(merge[:cut], merge[cut + 1 :]) for merge in strings(vocabulary.file, "tokenizer.ggml.merges")
                if (cut := merge.find(" ", 1)) > 0]  # fmt: skip
    scores = [-float(token_id) for token_id in range(len(tokens))] if in_order else vocabulary.scores()
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for token_id, token in enumerate(tokens):
        if vocabulary.kinds is not None and vocabulary.kinds[token_id] != NORMAL and token.strip(SPACE):
            continue
        if len(token) > MAX_PIECE_CHARS:
            raise ArtifactError(vocabulary.file.path.name, f"token {token_id:,} has {len(token):,} characters, more "
                                                           f"than the {MAX_PIECE_CHARS:,} allowed")
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((-scores[token_id], ids[left], ids[right], (left, right)))
    return [pair for *_, pair in sorted(found)]
