"""What the files of a model are for, what kind of model they make, and what a GGUF file's missing ones would be."""

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from inference.artifacts.gguf import GgufFile
from inference.artifacts.gguf_config import config_from_gguf, generation_config_from_gguf
from inference.artifacts.jsonfile import read_object, read_object_if_present
from inference.artifacts.safetensors import INDEX_NAME
from inference.text.gguf_tokenizer import chat_template_from_gguf, tokenizer_config_from_gguf, tokenizer_from_gguf
from registry.errors import ImportRefused
from registry.models import Kind, Role

DERIVED_NAMES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                 "chat_template.jinja")

_ROLES = {
    "config.json": Role.CONFIG,
    "generation_config.json": Role.GENERATION_CONFIG,
    "chat_template.jinja": Role.CHAT_TEMPLATE,
    "chat_template.json": Role.CHAT_TEMPLATE,
    INDEX_NAME: Role.WEIGHTS_INDEX,
    "tokenizer.json": Role.TOKENIZER,
    "tokenizer_config.json": Role.TOKENIZER,
    "special_tokens_map.json": Role.TOKENIZER,
    "added_tokens.json": Role.TOKENIZER,
    "vocab.txt": Role.TOKENIZER,
    "vocab.json": Role.TOKENIZER,
    "merges.txt": Role.TOKENIZER,
    "quantize_config.json": Role.QUANTISATION_CONFIG,
    "README.md": Role.CARD,
}


def role_of(path: str) -> Role:
    """Return what a file of a model is for, by its path inside the model."""
    if PurePosixPath(path).suffix.lower() in (".safetensors", ".gguf"):
        return Role.WEIGHTS
    return _ROLES.get(path, Role.OTHER)


def guess_kind(folder: Path) -> Kind:
    """Return what a model is for, from its own files. Raises ImportRefused when they don't say; ArtifactError."""
    if (folder / "modules.json").is_file():
        return Kind.EMBEDDING
    architectures = read_object(folder / "config.json").get("architectures")
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    if any(name.endswith("ForSequenceClassification") for name in names):
        return Kind.RERANK
    if any(name.endswith("ForCausalLM") for name in names):
        return Kind.CHAT
    raise ImportRefused(f"config.json: the architecture {', '.join(names)[:60] or '(none)'} does not say whether this "
                        "is for chat, embedding or rerank: give its kind")


def derived_files(folder: Path) -> dict[str, bytes]:
    """Return the files that a GGUF model lacks and that its metadata stand for: {name: content}.

    The .gguf file keeps the weights; these hold what everything else reads. Files that are there already win. A folder
    without a .gguf file lacks nothing. Raises ArtifactError.
    """
    ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) != 1:
        return {}
    file = GgufFile(ggufs[0])
    contents: dict[str, Callable[[], bytes]] = {
        "config.json": lambda: _json(config_from_gguf(file)),
        "generation_config.json": lambda: _json(generation_config_from_gguf(file)),
        "tokenizer.json": lambda: str(tokenizer_from_gguf(file).to_str()).encode(),
        "tokenizer_config.json": lambda: _json(tokenizer_config_from_gguf(file)),
        "chat_template.jinja": lambda: (chat_template_from_gguf(file) or "").encode(),
    }
    missing = {name: make() for name, make in contents.items() if not (folder / name).exists()}
    return {name: content for name, content in missing.items() if content}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def sentence_length(folder: Path) -> int | None:
    """Return the most tokens that sentence-transformers gives an embedding model, or None when it doesn't say."""
    length = read_object_if_present(folder / "sentence_bert_config.json").get("max_seq_length")
    return length if isinstance(length, int) and length > 0 else None
