"""How an embedding model makes vectors of hidden states, as sentence-transformers' files beside it say.

Files: modules.json, N_Pooling/config.json, N_Dense/config.json, config_sentence_transformers.json and
sentence_bert_config.json. A folder without modules.json is pooled as that library pools it: the mean, not normalised.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import MAX_CONFIG_BYTES, parse_object, read_object, read_object_if_present

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
DenseActivation = Literal["identity", "tanh", "relu", "gelu", "sigmoid"]

_LEGACY_MODES: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
_ACTIVATIONS: dict[str, DenseActivation] = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu",
                                            "Sigmoid": "sigmoid"}
DECODER_TOKENS = 8192
"""Most tokens of a text for a decoder, where neither its files nor a deployment say: a pool of that size is made."""
MAX_MODULES = 16
MAX_PROMPTS = 64
MAX_PROMPT_CHARS = 4096


@dataclass(frozen=True, kw_only=True)
class DenseSpec:
    """A linear layer over pooled vectors: its folder, its sizes and what follows it."""

    folder: str
    inputs: int
    outputs: int
    bias: bool
    activation: DenseActivation


@dataclass(frozen=True, kw_only=True)
class SentenceSpec:
    """From hidden states to vectors, and from texts to tokens.

    modes: pooled vectors that are joined, in this order. include_prompt: whether pooling sees an instruction's tokens.
    prompts: texts to write before an input, by name; default_prompt: the name of the one that is used unasked.
    dimensions: the lengths that dense vectors may be cut to; empty when the model was not trained for that, and any
    when `any_dimension`. max_tokens: most tokens of a text, where the files say; lower_case: texts are lowered first.
    true_token_id, false_token_id: the labels of a causal reranker, where a LogitScore module names them.
    """

    modes: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True
    dense: tuple[DenseSpec, ...] = ()
    normalise: bool = False
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None
    dimensions: tuple[int, ...] = ()
    any_dimension: bool = False
    max_tokens: int | None = None
    lower_case: bool = False
    true_token_id: int | None = None
    false_token_id: int | None = None

    def prompt(self, name: str | None) -> str:
        """Return the prompt of that name, of the default with None. Raises KeyError for an unknown name."""
        if name is None:
            return dict(self.prompts).get(self.default_prompt or "", "")
        return dict(self.prompts)[name]

    def vector_size(self, hidden_size: int) -> int:
        """Return the elements of a dense vector over hidden states of that size."""
        return self.dense[-1].outputs if self.dense else len(self.modes) * hidden_size

    def takes_dimensions(self) -> bool:
        return self.any_dimension or bool(self.dimensions)


def read_sentence_spec(folder: Path) -> SentenceSpec:
    """Read the spec of a model's folder. Raises ArtifactError, with the file, for what is wrong or unknown."""
    values: dict[str, Any] = _texts(folder) | _dimensions(folder)
    path = folder / "modules.json"
    if path.is_file():
        values |= _modules(folder, _read_list(path))
    return SentenceSpec(**values)


def _read_list(path: Path) -> list[Any]:
    with path.open("rb") as file:
        data = file.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ArtifactError(path.name, f"is larger than {MAX_CONFIG_BYTES:,} bytes")
    modules = parse_object(b'{"modules":' + data + b"}", file=path.name)["modules"]
    if not isinstance(modules, list) or len(modules) > MAX_MODULES:
        raise ArtifactError(path.name, f"is not a list of at most {MAX_MODULES} modules")
    return modules


def _modules(folder: Path, modules: list[Any]) -> dict[str, Any]:
    """Read the chain of modules: a transformer, then pooling, dense layers and normalisation."""
    values: dict[str, Any] = {}
    dense: list[DenseSpec] = []
    for module in modules:
        kind, part = _module(module)
        if kind == "Transformer":
            if part not in ("", "."):
                raise ArtifactError("modules.json", f"the transformer lies in {part!r}; only the folder itself is read")
        elif kind == "Pooling":
            values |= _pooling(folder, part)
        elif kind == "Dense":
            dense.append(_dense(folder, part))
        elif kind == "Normalize":
            values["normalise"] = True
        elif kind == "LogitScore":
            values |= _logit_score(folder, part)
        else:
            raise ArtifactError("modules.json", f"a module of type {kind[:60]!r} is not supported")
    return values | {"dense": tuple(dense)}


def _module(module: Any) -> tuple[str, str]:
    kind, part = (module.get("type"), module.get("path", "")) if isinstance(module, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(part, str):
        raise ArtifactError("modules.json", "a module has no type or no path")
    if part and (PurePosixPath(part).is_absolute() or ".." in PurePosixPath(part).parts or "\\" in part):
        raise ArtifactError("modules.json", f"the path {part[:60]!r} leads out of the model's folder")
    return kind.rpartition(".")[2], part


def _pooling(folder: Path, part: str) -> dict[str, Any]:
    name = f"{part}/config.json"
    config = read_object(folder / part / "config.json")
    given = config.get("pooling_mode")
    modes = [given] if isinstance(given, str) else given
    if modes is None:
        modes = [mode for key, mode in _LEGACY_MODES.items() if config.get(key) is True] or ["mean"]
    if not isinstance(modes, list) or not modes or any(mode not in get_args(PoolingMode) for mode in modes):
        raise ArtifactError(name, f"pooling_mode {str(given)[:60]!r} is not known: {', '.join(get_args(PoolingMode))}")
    include = config.get("include_prompt", True)
    return {"modes": tuple(modes), "include_prompt": include is not False}


def _dense(folder: Path, part: str) -> DenseSpec:
    name = f"{part}/config.json"
    config = read_object(folder / part / "config.json")
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise ArtifactError(name, f"activation_function {activation[:60]!r} is not known: {', '.join(_ACTIVATIONS)}")
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise ArtifactError(name, "only a plain layer over the pooled vector is supported")
    sizes = [config.get("in_features"), config.get("out_features")]
    if not all(isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**31 for size in sizes):
        raise ArtifactError(name, "in_features and out_features must be positive whole numbers")
    return DenseSpec(folder=part, inputs=int(config["in_features"]), outputs=int(config["out_features"]),
                     bias=config.get("bias", True) is not False, activation=_ACTIVATIONS[activation])


def _logit_score(folder: Path, part: str) -> dict[str, Any]:
    config = read_object(folder / part / "config.json")
    labels = {name: config.get(name) for name in ("true_token_id", "false_token_id")}
    for name, value in labels.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ArtifactError(f"{part}/config.json", f"{name} must be a token id")
    return labels


def _texts(folder: Path) -> dict[str, Any]:
    """Prompts from config_sentence_transformers.json, lengths and case from sentence_bert_config.json."""
    file = "config_sentence_transformers.json"
    config = read_object_if_present(folder / file)
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or len(prompts) > MAX_PROMPTS or not all(
        isinstance(text, str) and len(text) <= MAX_PROMPT_CHARS for text in prompts.values()
    ):
        raise ArtifactError(file, f"prompts is not a map of at most {MAX_PROMPTS} short texts")
    if default is not None and default not in prompts:
        raise ArtifactError(file, f"default_prompt_name {str(default)[:60]!r} is none of the prompts")
    sentence = read_object_if_present(folder / "sentence_bert_config.json")
    longest = sentence.get("max_seq_length")
    if longest is not None and not (isinstance(longest, int) and not isinstance(longest, bool) and longest > 0):
        raise ArtifactError("sentence_bert_config.json", "max_seq_length must be a positive whole number")
    return {"prompts": tuple(prompts.items()), "default_prompt": default, "max_tokens": longest,
            "lower_case": sentence.get("do_lower_case") is True}


def _dimensions(folder: Path) -> dict[str, Any]:
    """Matryoshka lengths, as vLLM reads them from config.json and, beside that, from the library's own file."""
    for file in ("config.json", "config_sentence_transformers.json"):
        config = read_object_if_present(folder / file)
        lengths = config.get("matryoshka_dimensions")
        if lengths is not None:
            if not isinstance(lengths, list) or not all(
                isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in lengths
            ):
                raise ArtifactError(file, "matryoshka_dimensions must be a list of positive whole numbers")
            return {"dimensions": tuple(sorted(lengths))}
        if config.get("is_matryoshka") is True:
            return {"any_dimension": True}
    return {}
