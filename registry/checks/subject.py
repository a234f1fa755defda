"""The model under verification: its files, opened once and only when a check first needs them."""

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.artifacts.fallback import FallbackSpec, fallback_spec_from_config, runs_natively
from inference.artifacts.jsonfile import read_object
from inference.artifacts.source import ModelSource
from inference.decoder_spec import DecoderSpec
from inference.encoders.config import encoder_spec_from_config, is_encoder
from inference.encoders.spec import EncoderSpec
from inference.text.tokenizer import TextTokenizer
from registry.checks.results import SubjectKind

_WORD_EMBEDDINGS = re.compile(r"(?:^|\.)(?:word_embeddings|embed_tokens|tok_embeddings|wte)\.weight$")


class Subject:
    """A staged folder, what it is to be, and what it is compared with.

    base: the folder of the model that an adapter is for. earlier: the vocabulary digest of the version before.
    Properties raise ArtifactError when the files can't be read.
    """

    def __init__(self, folder: Path, kind: SubjectKind, *, base: Path | None = None, earlier: str = "") -> None:
        self.folder, self.kind, self.base, self.earlier = folder, kind, base, earlier
        self.warnings: list[tuple[str, str]] = []  # of the check that runs: (file, message)
        self.parameters = self.context_length = 0
        self.vocabulary_digest = ""

    def warn(self, file: str, message: str) -> None:
        """Add a warning to the check that runs now."""
        self.warnings.append((file, message))

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield (path inside the model, file) of everything in the folder, links and devices too."""
        for parent, folders, names in os.walk(self.folder):
            folders.sort()
            linked = [name for name in folders if (Path(parent) / name).is_symlink()]
            for name in sorted([*names, *linked]):
                path = Path(parent) / name
                yield path.relative_to(self.folder).as_posix(), path

    @functools.cached_property
    def source(self) -> ModelSource:
        return ModelSource.open(self.folder)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        return read_object(self.folder / "config.json") if (self.folder / "config.json").is_file() else (
            self.source.config)

    @property
    def is_encoder(self) -> bool:
        return self.kind != "chat" and is_encoder(self.config)

    @functools.cached_property
    def decoder_spec(self) -> DecoderSpec | FallbackSpec:
        if runs_natively(self.source.config):
            return self.source.decoder_spec()
        return fallback_spec_from_config(self.source.config, self.source.generation_config)

    @functools.cached_property
    def encoder_spec(self) -> EncoderSpec:
        return encoder_spec_from_config(self.config)

    @functools.cached_property
    def tokenizer(self) -> TextTokenizer:
        return TextTokenizer.from_path(self.folder)

    @property
    def embedding_rows(self) -> int:
        """How many token ids the model has a vector for."""
        rows = [info.shape[0] for name, info in self.source.tensors.items()
                if _WORD_EMBEDDINGS.search(name) and info.shape]
        if not rows and self.kind == "chat":  # transformers runs it, under names of its own
            return self.decoder_spec.vocab_size
        if not rows:
            raise ArtifactError("weights", "no tensor of word embeddings was found")
        return min(rows)
