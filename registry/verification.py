"""Verifies a staged model without torch: everything that would fail or mislead later is refused here, in words."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference.artifacts.check import check_decoder_weights, count_parameters
from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.text.chat_template import ChatTemplate, TemplateError, read_chat_template
from inference.text.tokenizer import TextTokenizer
from registry.contents import sentence_length
from registry.errors import ImportRefused
from registry.models import Kind

EMBEDDING_NAMES = ("word_embeddings.weight", "embed_tokens.weight", "wte.weight")
SAMPLE_CHATS = (
    [{"role": "user", "content": "Hello"}],
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}],
)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What verification learns: parameters (tied embeddings once) and the most tokens of prompt and reply together."""

    parameters: int
    context_length: int


def verify(folder: Path, kind: Kind) -> Facts:
    """Return the facts of a complete and consistent model. Raises ImportRefused, naming the file and the reason."""
    try:
        return _verify_chat(folder) if kind == Kind.CHAT else _verify_encoder(folder)
    except (ArtifactError, TemplateError) as error:
        raise ImportRefused(str(error)) from None


def _verify_chat(folder: Path) -> Facts:
    source = ModelSource.open(folder)
    spec = source.decoder_spec()
    check_decoder_weights(source, spec)
    tokenizer = TextTokenizer.from_path(folder)
    _check_vocabulary(tokenizer, spec.vocab_size)
    _check_template(folder, tokenizer)
    return Facts(parameters=count_parameters(source), context_length=spec.max_position)


def _verify_encoder(folder: Path) -> Facts:
    """Check an embedding or rerank model's content; whether its architecture can be run is the engine's matter."""
    source = ModelSource.open(folder)
    if source.config.get("auto_map"):
        raise ArtifactError("config.json", "auto_map asks for the model's own Python code, which is never run")
    if not isinstance(source.config.get("model_type"), str):
        raise ArtifactError("config.json", "model_type is missing")
    rows = [info.shape[0] for name, info in source.tensors.items() if name.endswith(EMBEDDING_NAMES) and info.shape]
    if not rows:
        raise ArtifactError("weights", "no tensor of word embeddings was found")
    _check_vocabulary(TextTokenizer.from_path(folder), min(rows))
    positions = source.config.get("max_position_embeddings")
    limits = [limit for limit in (positions, sentence_length(folder)) if isinstance(limit, int) and limit > 0]
    if not limits:
        raise ArtifactError("config.json", "max_position_embeddings is missing")
    return Facts(parameters=count_parameters(source), context_length=min(limits))


def _check_vocabulary(tokenizer: TextTokenizer, rows: int) -> None:
    if tokenizer.largest_id >= rows:
        raise ArtifactError("tokenizer.json", f"gives ids up to {tokenizer.largest_id:,}, "
                                              f"but the embedding has {rows:,} rows")


def _check_template(folder: Path, tokenizer: TextTokenizer) -> None:
    """Render sample chats. A model without a template is taken: programs may complete plain text with it."""
    template = read_chat_template(folder)
    if template is None:
        return
    render: Callable[..., str] = ChatTemplate(template, tokenizer.named_tokens).render
    for messages in SAMPLE_CHATS:
        try:
            render(messages)
        except TemplateError as error:
            raise ArtifactError("chat template", f"fails on a plain chat: {error}") from None
