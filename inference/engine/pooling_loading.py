"""Puts an engine that embeds or scores together from a model on disk: encoder, pooling, heads and loop."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.encoders.config import encoder_spec_from_config, is_encoder
from inference.encoders.kind import score_activation
from inference.encoders.sentence import SentenceSpec, read_sentence_spec
from inference.encoders.spec import EncoderSpec
from inference.encoders.weights import EncoderWeights, read_encoder
from inference.engine.pooling_loop import PoolingLoop
from inference.engine.pooling_model import PoolingModel
from inference.models.encoder_batch import TokenEncoder, text_batch
from inference.pooling.scores import ClassifierHead
from inference.pooling.vectors import DensePooler, read_dense
from inference.protocol import LoadPhase
from inference.spec import EngineConfig, EngineKind, Mode, SpecError
from inference.text.tokenizer import TextTokenizer

logger = logging.getLogger(__name__)

OnProgress = Callable[[LoadPhase, int, int], None]

STEP_FLOPS = 60e9
"""Arithmetic of one batch: a few tenths of a second on two cores, so that nobody waits long for a free step."""
LEAST_TOKENS, MOST_TOKENS = 512, 4096

_SCORE_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "identity", "Tanh": "tanh", "ReLU": "relu"}
_CONTROL_NAMES = ("cls_token", "bos_token", "eos_token", "sep_token", "pad_token", "unk_token")


@dataclass(frozen=True, kw_only=True)
class LoadedPooling:
    """A loop that takes Embed or Score, and what it holds: memory in bytes, time in seconds.

    mode: what it runs in; notes: what differs from what was asked for.
    """

    loop: PoolingLoop
    mode: str
    notes: tuple[str, ...]
    max_model_len: int
    weights_bytes: int
    load_seconds: float


def load_pooling(config: EngineConfig, kind: EngineKind, *, on_progress: OnProgress) -> LoadedPooling:
    """Load an embedding or rerank model. Raises ArtifactError or SpecError with a readable reason."""
    began = time.monotonic()
    folder = Path(config.model)
    sentence = read_sentence_spec(folder)
    tokenizer = TextTokenizer.from_path(folder)
    source = ModelSource.open(folder)
    if is_encoder(source.config):
        model, mode, work = _encoder_model(config, kind, source, folder, sentence, tokenizer, on_progress)
    else:
        from inference.engine.pooling_decoder import decoder_model  # torch: only for models that need it

        model, mode, work = decoder_model(
            config, kind, source, sentence, lambda size: make_pooler(folder, sentence, size), tokenizer, on_progress
        )
    tokens = min(MOST_TOKENS, max(LEAST_TOKENS, config.max_num_batched_tokens, int(STEP_FLOPS / (2 * work))))
    notes = () if mode == config.mode else (f"this model's weights run as {mode}, not as {config.mode}",)
    for note in (*notes, *source.conversions(mode)):
        logger.info("%s: %s", folder.name, note)
    return LoadedPooling(
        loop=PoolingLoop(model, max_batch_tokens=tokens), mode=mode, notes=(*notes, *source.conversions(mode)),
        max_model_len=model.max_tokens,
        weights_bytes=model.encoder.weights_bytes, load_seconds=time.monotonic() - began,
    )


def _encoder_model(config: EngineConfig, kind: EngineKind, source: ModelSource, folder: Path, sentence: SentenceSpec,
                   tokenizer: TextTokenizer, on_progress: OnProgress) -> tuple[PoolingModel, str, int]:
    """Return the model, the mode that it runs in, and the multiply-adds of a token."""
    spec = encoder_spec_from_config(source.config)
    if tokenizer.largest_id >= spec.vocab_size:
        raise ArtifactError("tokenizer.json", f"can give token id {tokenizer.largest_id:,}, and the model knows "
                                              f"{spec.vocab_size:,} tokens")
    weights = read_encoder(source, spec, on_bytes=lambda done, total: on_progress("reading", done, total))
    encoder, mode = make_encoder(spec, weights, config, on_progress=on_progress)
    classifier = _classifier(spec, weights, folder, source) if kind == "rerank" and weights.head is not None else None
    model = PoolingModel(
        kind=kind, encoder=encoder, sentence=sentence, max_tokens=_limit(config, sentence, spec.max_position),
        pooler=make_pooler(folder, sentence, spec.hidden_size), sparse_head=weights.sparse,
        vector_head=weights.vectors, classifier=classifier, unused_ids=control_ids(tokenizer),
    )
    return model, mode, spec.parameters() - spec.vocab_size * spec.hidden_size


def make_encoder(spec: EncoderSpec, weights: EncoderWeights, config: EngineConfig, *, on_progress: OnProgress
                 ) -> tuple[TokenEncoder, str]:
    """Return the fastest encoder for this shape and device, and the mode that it runs in. Raises SpecError."""
    if config.device == "cuda":
        return _cuda_encoder(spec, weights, config.mode)
    from inference.engine.runner import thread_count  # numba
    from inference.kernels.pinning import pin_team
    from inference.models.encoder_compiled import CompiledEncoder, can_compile

    if can_compile(spec):
        on_progress("warming", 0, 1)
        threads = thread_count(config)
        pin_team(threads)
        compiled = CompiledEncoder(spec, weights, mode=config.mode, threads=threads)
        compiled.encode(text_batch([[0, 0]]))  # compiles, or reads machine code from the disk
        on_progress("warming", 1, 1)
        return compiled, config.mode
    from inference.models.encoder_torch import TorchEncoder  # torch: only for models that need it

    return TorchEncoder(spec, weights), "float32"


def _cuda_encoder(spec: EncoderSpec, weights: EncoderWeights, mode: Mode) -> tuple[TokenEncoder, str]:
    import torch

    from inference.models.encoder_torch import TorchEncoder

    if not torch.cuda.is_available():
        raise SpecError("device", "this machine has no CUDA device")
    exact = mode == "float32"
    encoder = TorchEncoder(spec, weights, device="cuda", dtype=torch.float32 if exact else torch.bfloat16)
    return encoder, "float32" if exact else "bfloat16"


def make_pooler(folder: Path, sentence: SentenceSpec, hidden_size: int) -> DensePooler:
    """Return the pooling of a model's folder. Raises ArtifactError when its layers don't fit each other."""
    size = len(sentence.modes) * hidden_size
    for layer in sentence.dense:
        if layer.inputs != size:
            raise ArtifactError(layer.folder, f"takes vectors of {layer.inputs} elements and gets {size}")
        size = layer.outputs
    return DensePooler(sentence, [read_dense(folder, layer) for layer in sentence.dense])


def _classifier(spec: EncoderSpec, weights: EncoderWeights, folder: Path, source: ModelSource) -> ClassifierHead:
    if spec.labels != 1:
        raise ArtifactError("config.json", f"the classifier has {spec.labels} labels, and a reranker must have one")
    name = score_activation(folder, source.config) or "Sigmoid"
    if name not in _SCORE_ACTIVATIONS:
        raise ArtifactError("config.json", f"the activation {name[:60]!r} of the score is not known: "
                                           f"{', '.join(_SCORE_ACTIVATIONS)}")
    assert weights.head is not None
    return ClassifierHead(spec, weights.head, _SCORE_ACTIVATIONS[name])


def control_ids(tokenizer: TextTokenizer) -> frozenset[int]:
    """Return the ids of the named control tokens, which have no lexical weight."""
    named = (tokenizer.named_tokens.get(name) for name in _CONTROL_NAMES)
    ids = (tokenizer.token_id(token) for token in named if token is not None)
    return frozenset(token_id for token_id in ids if token_id is not None)


def _limit(config: EngineConfig, sentence: SentenceSpec, positions: int) -> int:
    """Most tokens of a text: the model's own limit, or a lower one that the deployment sets."""
    own = min(positions, sentence.max_tokens or positions)
    if config.max_model_len is not None and config.max_model_len > positions:
        raise SpecError("max_model_len", f"is {config.max_model_len:,}, and the model has {positions:,} positions")
    return min(own, config.max_model_len) if config.max_model_len else own
