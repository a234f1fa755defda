"""Walks a model's layers with calibration texts: what goes into each linear layer, and on to the next layer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from inference.artifacts.errors import ArtifactError
from inference.artifacts.names import HEAD
from inference.artifacts.source import ModelSource
from inference.text.tokenizer import TextTokenizer

TEXTS = Path(__file__).parent.parent / "data" / "calibration"
SEQUENCE_TOKENS = 512
LEAST_TOKENS, MOST_TOKENS = 512, 6144
MAX_TEXT_BYTES = 64 * 2**20

RoundInputs = Callable[[Tensor], Tensor]


def calibration_ids(
    tokenizer: TextTokenizer, files: list[Path], *, longest: int, most: int = MOST_TOKENS
) -> list[list[int]]:
    """Return token ids of the texts (the package's own when there are none) in sequences of at most longest tokens.

    Of longer texts, about `most` tokens are taken, spread over all of them. Raises ArtifactError for a text that can't
    be read, and when all together are too short.
    """
    length = min(SEQUENCE_TOKENS, longest)
    sequences = []
    for file in files or sorted(TEXTS.glob("*.txt")):
        if not file.is_file():
            raise ArtifactError(str(file), "does not exist")
        if file.stat().st_size > MAX_TEXT_BYTES:
            raise ArtifactError(str(file), f"is larger than the {MAX_TEXT_BYTES:,} bytes allowed")
        try:
            ids = tokenizer.encode(file.read_text(encoding="utf-8"), add_special_tokens=True)
        except UnicodeDecodeError:
            raise ArtifactError(str(file), "is not text in UTF-8") from None
        sequences += [ids[start : start + length] for start in range(0, len(ids), length)]
    if (total := sum(map(len, sequences))) < LEAST_TOKENS:
        raise ArtifactError("calibration", f"the texts have {total:,} tokens; at least {LEAST_TOKENS} are needed")
    step = max(1.0, total / most)
    return [sequences[int(place * step)] for place in range(int(len(sequences) / step))]


def load_model(source: ModelSource) -> nn.Module:
    """Return the model in float32 as transformers runs it. Raises ArtifactError."""
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {key: value for key, value in source.config.items() if key != "quantization_config"}
    config = AutoConfig.for_model(**settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    weights = {name: torch.from_numpy(source.read_float32(name).copy()) for name in source.tensors}
    missing, extra = model.load_state_dict(weights, strict=False)
    if lacking := [name for name in missing if not (config.tie_word_embeddings and name == HEAD)]:
        raise ArtifactError("weights", f"tensor {lacking[0][:200]!r} is missing")
    if unknown := [name for name in extra if name != HEAD]:
        raise ArtifactError("weights", f"tensor {unknown[0][:200]!r} is not one of this model")
    result: nn.Module = model.eval().requires_grad_(False)
    return result


class _Taken(Exception):
    """A layer's inputs have been seen."""


class LayerWalk:
    """A model's decoder layers one after another, with the hidden states of every calibration sequence between them.

    layers: the modules. hidden: what goes into the current layer, one [1, tokens, hidden] a sequence.
    """

    def __init__(self, model: Any, sequences: list[list[int]]) -> None:
        if not isinstance(layers := getattr(getattr(model, "model", None), "layers", None), nn.ModuleList):
            raise ArtifactError("config.json", f"{type(model).__name__} keeps its layers where this tool does not look")
        self.layers = layers
        self.hidden: list[Tensor] = []
        self._arguments: list[list[dict[str, Any]]] = [[] for _ in layers]  # [layer][sequence]
        with self._recording():
            for ids in sequences:
                model(torch.tensor([ids]), use_cache=False, logits_to_keep=1)

    @contextmanager
    def _recording(self) -> Iterator[None]:
        def keep(index: int) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                if index == 0:
                    self.hidden.append(args[0] if args else kwargs["hidden_states"])
                self._arguments[index].append({key: value for key, value in kwargs.items() if key != "hidden_states"})
            return hook

        handles = [layer.register_forward_pre_hook(keep(index), with_kwargs=True)
                   for index, layer in enumerate(self.layers)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def inputs(self, index: int, modules: list[nn.Linear]) -> list[Tensor]:
        """Return what goes into the first of these linear layers of a decoder layer, [tokens, in] a sequence."""
        found: list[Tensor] = []

        def take(module: nn.Module, args: tuple[Any, ...]) -> None:
            found.append(args[0].flatten(0, -2))
            raise _Taken

        handle = modules[0].register_forward_pre_hook(take)
        try:
            for hidden, arguments in zip(self.hidden, self._arguments[index], strict=True):
                with suppress(_Taken):  # the rest of the layer isn't wanted yet
                    self.layers[index](hidden, **arguments)
        finally:
            handle.remove()
        return found

    def advance(self, index: int) -> None:
        """Go through a layer as it is now: what it puts out goes into the next."""
        for place, arguments in enumerate(self._arguments[index]):
            output = self.layers[index](self.hidden[place], **arguments)
            self.hidden[place] = output[0] if isinstance(output, tuple) else output


@contextmanager
def rounded_inputs(modules: list[nn.Linear], round_inputs: RoundInputs | None) -> Iterator[None]:
    """Round what goes into these linear layers, for as long as this lasts."""
    handles = [] if round_inputs is None else [
        module.register_forward_pre_hook(lambda _, args: (round_inputs(args[0]), *args[1:])) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
