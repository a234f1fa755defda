"""What the files of a model are for, what kind of model they make, and what a GGUF file's missing ones would be."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
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
CARD_HEAD_CHARS = 20_000

_ROLES = {
    "config.json": Role.CONFIG,
    "generation_config.json": Role.GENERATION_CONFIG,
    "chat_template.jinja": Role.CHAT_TEMPLATE,
    "chat_template.json": Role.CHAT_TEMPLATE,
    INDEX_NAME: Role.WEIGHTS_INDEX,
    "tokenizer.json": Role.TOKENIZER,
    "tokenizer_config.json": Role.TOKENIZER,
    "tokenizer.model": Role.TOKENIZER,
    "special_tokens_map.json": Role.TOKENIZER,
    "added_tokens.json": Role.TOKENIZER,
    "vocab.txt": Role.TOKENIZER,
    "vocab.json": Role.TOKENIZER,
    "merges.txt": Role.TOKENIZER,
    "quantize_config.json": Role.QUANTISATION_CONFIG,
    "quant_config.json": Role.QUANTISATION_CONFIG,
    "recipe.yaml": Role.QUANTISATION_CONFIG,
    "README.md": Role.CARD,
}


def role_of(path: str) -> Role:
    """Return what a file of a model is for, by its path inside the model."""
    if PurePosixPath(path).name in ("adapter_config.json", "adapter_model.safetensors"):
        return Role.LORA
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in (".safetensors", ".gguf"):
        return Role.WEIGHTS
    if suffix in (".engine", ".plan"):
        return Role.COMPILED_ENGINE
    return _ROLES.get(path, Role.OTHER)


def guess_kind(folder: Path) -> Kind:
    """Return what a model is for, from its own files. Raises ImportRefused when they don't say; ArtifactError."""
    if (folder / "adapter_config.json").is_file():
        return Kind.ADAPTER
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


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a model's own files say of it besides its architecture. sampling: see `sampling_defaults`."""

    sampling: dict[str, float | int]
    licence: str


def describe(folder: Path) -> Description:
    """Read a staged model's description. Raises ArtifactError."""
    return Description(sampling=sampling_defaults(folder), licence=licence_of(folder))


def sampling_defaults(folder: Path) -> dict[str, float | int]:
    """Return the sampling that a model's generation_config.json asks for: temperature, top_p, top_k, where it says so.

    `do_sample: false` is greedy, as transformers has it; without any of these the site's own defaults hold. What is out
    of range counts as not said. Raises ArtifactError.
    """
    given = read_object_if_present(folder / "generation_config.json")
    if given.get("do_sample") is False:
        return {"temperature": 0}
    found: dict[str, float | int] = {}
    for name, low, high in (("temperature", 0, 2), ("top_p", 0, 1), ("top_k", 0, 1_000_000)):
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            found[name] = int(value) if name == "top_k" else float(value)
    return found


def licence_of(folder: Path) -> str:
    """Return the licence that the card's front matter names, as `apache-2.0`, or "" when it doesn't."""
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as card:
            head = card.read(CARD_HEAD_CHARS)
    except OSError:
        return ""
    if not head.startswith("---"):
        return ""
    front_matter = head[3:].partition("\n---")[0]
    found = re.search(r"^license(?:_name)?:[ \t]*(\S.{0,198})$", front_matter, re.MULTILINE)
    return found.group(1).strip().strip("'\"") if found else ""
