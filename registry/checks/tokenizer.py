"""Checks on the tokenizer: that it loads, fits the weights, ends replies, and gives texts back as they were."""

import hashlib

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import read_object_if_present
from inference.text.tokenizer import TextTokenizer
from registry.checks.subject import Subject

SAMPLES = {
    "English": "The quick brown fox jumps over the lazy dog, doesn't it?",
    "German": "Größere Übungen für Äpfel",
    "Chinese": "今天天气很好，我们去公园吧。",
    "code": "def f(x):\n    return {'a': x[0] + 1}\n",
    "emoji": "Thank you 👍🏽 — naïve café",
}
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
UNUSED_ROWS = 4096  # embeddings are padded to round numbers, but not by more than a few thousand rows


def check_tokenizer(subject: Subject) -> str:
    """The tokenizer loads, and gives at least one token for a text."""
    tokenizer = subject.tokenizer
    for language, text in SAMPLES.items():
        if not tokenizer.encode(text, add_special_tokens=False):
            raise ArtifactError("tokenizer.json", f"gives no tokens at all for a text ({language}: {text[:30]!r})")
    return f"{tokenizer.vocab_size:,} tokens, {len(tokenizer.special_ids)} of them special"


def check_vocabulary(subject: Subject) -> str:
    """Every id that the tokenizer can give has a row in the embedding."""
    rows, largest = subject.embedding_rows, subject.tokenizer.largest_id
    if largest >= rows:
        raise ArtifactError("tokenizer.json", f"gives ids up to {largest:,}, but the embedding has {rows:,} rows")
    if rows - subject.tokenizer.vocab_size > max(UNUSED_ROWS, rows // 10):
        subject.warn("tokenizer.json", f"knows {subject.tokenizer.vocab_size:,} tokens, but the embedding has {rows:,} "
                                       "rows: is it this model's tokenizer?")
    return f"ids go up to {largest:,}, the embedding has {rows:,} rows"


def check_special_tokens(subject: Subject) -> str:
    """Special and end ids lie in the vocabulary, and the tokenizer's end token ends a reply."""
    rows = subject.embedding_rows
    for file in ("config.json", "generation_config.json"):
        values = subject.config if file == "config.json" else read_object_if_present(subject.folder / file)
        for key in IDS:
            value = values.get(key)
            for token_id in value if isinstance(value, list) else [value]:
                if token_id is None:
                    continue
                if type(token_id) is not int or not 0 <= token_id < rows:
                    raise ArtifactError(file, f"{key} is {str(token_id)[:40]}, and ids go from 0 to {rows - 1:,}")
    tokenizer = subject.tokenizer
    for key, token in tokenizer.named_tokens.items():
        if tokenizer.token_id(token) is None:
            subject.warn("tokenizer_config.json", f"{key} is {token[:40]!r}, which the tokenizer doesn't know")
    return _check_ends(subject) if subject.kind == "chat" else f"all special ids lie under {rows:,}"


def _check_ends(subject: Subject) -> str:
    ends, tokenizer = subject.decoder_spec.eos_token_ids, subject.tokenizer
    if not ends:
        subject.warn("config.json", "names no end id, so replies go on until they are cut off")
    eos = tokenizer.token_id(tokenizer.eos_token) if tokenizer.eos_token else None
    if ends and eos is not None and eos not in ends:
        subject.warn("tokenizer_config.json", f"the end token {tokenizer.eos_token!r} has the id {eos:,}, which is not "
                                              f"an end id of the model ({', '.join(map(str, ends))})")
    return f"replies end with {', '.join(_shown(tokenizer, end) for end in ends) or 'nothing'}"


def _shown(tokenizer: TextTokenizer, token_id: int) -> str:
    return f"{tokenizer.backend.id_to_token(token_id)!r} ({token_id:,})"


def check_round_trip(subject: Subject) -> str:
    """Sample texts come back from their ids as they were. Encoders may lower case or drop accents, so they are free."""
    tokenizer = subject.tokenizer
    changed = []
    for language, text in SAMPLES.items():
        ids = tokenizer.encode_plain(text)
        if any(not 0 <= token_id < subject.embedding_rows for token_id in ids):
            raise ArtifactError("tokenizer.json", f"gives an id that the embedding lacks for {text[:40]!r}")
        if tokenizer.decode(ids).strip() != text.strip():
            changed.append(language)
    if changed and not subject.is_encoder:
        subject.warn("tokenizer.json", f"texts come back changed from their ids: {', '.join(changed)}")
    return f"{len(SAMPLES)} sample texts encoded and decoded, {len(SAMPLES) - len(changed)} came back as they were"


def check_digest(subject: Subject) -> str:
    """The vocabulary is that of the version before; a change is a warning."""
    subject.vocabulary_digest = digest = vocabulary_digest(subject.tokenizer)
    if subject.earlier and subject.earlier != digest:
        subject.warn("tokenizer.json", "the vocabulary is not that of the version before: the same text gives other "
                                       "ids, so prompts that were cached or counted for it don't carry over")
    return f"the vocabulary's digest is {digest[:12]}"


def check_adapter_vocabulary(subject: Subject) -> str:
    """A tokenizer beside an adapter is the base model's, which is the one that is used; another is a warning."""
    if not (subject.folder / "tokenizer.json").is_file():
        return "no tokenizer of its own: the base model's is used"
    subject.vocabulary_digest = digest = vocabulary_digest(subject.tokenizer)
    if subject.base is None:
        return f"the vocabulary's digest is {digest[:12]}"
    base = TextTokenizer.from_path(subject.base)
    if (other := vocabulary_digest(base)) != digest:
        subject.warn("tokenizer.json", f"the vocabulary is not the base model's ({subject.tokenizer.vocab_size:,} "
                                       f"tokens, the base has {base.vocab_size:,}): the adapter runs with the "
                                       "base model's")
    return f"the vocabulary's digest is {digest[:12]}, the base model's {other[:12]}"


def vocabulary_digest(tokenizer: TextTokenizer) -> str:
    """Return the SHA-256 over all tokens in order of their ids."""
    digest = hashlib.sha256()
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
    for token, token_id in sorted(vocabulary.items(), key=lambda item: item[1]):
        digest.update(f"{token_id}\0{token}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
