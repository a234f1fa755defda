"""What a model is for, from its own files: chat, embedding or rerank."""

from pathlib import Path
from typing import Any

from inference.artifacts.jsonfile import read_object, read_object_if_present
from inference.encoders.config import is_encoder
from inference.spec import EngineKind


def engine_kind(folder: Path) -> EngineKind:
    """Return the kind of a model's folder or .gguf file. Raises ArtifactError.

    A classifier is a reranker, an encoder or anything with sentence-transformers' modules an embedding model, and the
    rest chats. A causal reranker without modules looks like a chat model: its kind has to be given.
    """
    if not (folder / "config.json").is_file():
        return "chat"  # a .gguf file, or what loading will refuse with its own words
    config = read_object(folder / "config.json")
    if any(name.endswith("ForSequenceClassification") for name in _architectures(config)):
        return "rerank"
    modules = folder / "modules.json"
    if modules.is_file():
        return "rerank" if b"LogitScore" in modules.read_bytes()[:65_536] else "embedding"
    return "embedding" if is_encoder(config) else "chat"


def score_activation(folder: Path, config: dict[str, Any]) -> str | None:
    """Return the class name of a cross-encoder's activation ("Sigmoid", "Identity"), None where its files name none.

    Read where sentence-transformers reads it: config.json, new key and old, then config_sentence_transformers.json.
    """
    nested = config.get("sentence_transformers")
    beside = read_object_if_present(folder / "config_sentence_transformers.json")
    names = (
        nested.get("activation_fn") if isinstance(nested, dict) else None,
        config.get("sbert_ce_default_activation_function"), beside.get("activation_fn"),
    )
    return next((name.rpartition(".")[2] for name in names if isinstance(name, str)), None)


def _architectures(config: dict[str, Any]) -> list[str]:
    names = config.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
