"""Checks on weights: their headers, byte for byte, and that they are the tensors that the configuration promises."""

from collections import Counter

from inference.artifacts.check import check_decoder_weights, count_parameters
from inference.artifacts.errors import ArtifactError
from inference.artifacts.fallback import FallbackSpec
from inference.encoders.sentence import read_sentence_spec
from inference.encoders.weights import check_encoder
from registry.checks.subject import Subject


def check_configuration(subject: Subject) -> str:
    """config.json names an architecture that is known here, with possible numbers."""
    config = subject.config
    if config.get("auto_map"):
        raise ArtifactError("config.json", "auto_map asks for the model's own Python code, which is never run")
    if not isinstance(config.get("model_type"), str):
        raise ArtifactError("config.json", "model_type is missing")
    return f"the architecture is {config['model_type']}"


def check_weights(subject: Subject) -> str:
    """Headers are whole, tensors lie in their files without gaps or overlaps, index and shards agree."""
    tensors = subject.source.tensors
    if not tensors:
        raise ArtifactError("weights", "hold no tensor")
    kinds = Counter(info.dtype for info in tensors.values())
    stored = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
    return f"{len(tensors):,} tensors ({stored}), {sum(info.nbytes for info in tensors.values()):,} bytes"


def check_architecture(subject: Subject) -> str:
    """Every tensor of the architecture is there in its shape, and no other."""
    if subject.is_encoder:
        return _check_encoder(subject)
    spec = subject.decoder_spec
    if isinstance(spec, FallbackSpec):
        return _check_fallback(subject, spec)
    if subject.kind == "chat":
        check_decoder_weights(subject.source, spec)
    subject.parameters, subject.context_length = count_parameters(subject.source), spec.max_position
    if subject.source.activations is not None:
        subject.warn("config.json", f"the checkpoint rounds activations ({subject.source.activations}); here they stay "
                                    "in floating point")
    return (f"a {spec.family} decoder: {spec.num_layers} layers of {spec.hidden_size:,}, {spec.num_heads} heads, "
            f"{spec.num_kv_heads} KV heads, {subject.parameters:,} parameters, {spec.max_position:,} tokens of context")


def _check_encoder(subject: Subject) -> str:
    spec, sentence = subject.encoder_spec, read_sentence_spec(subject.folder)
    check_encoder(subject.source, spec)
    subject.parameters = count_parameters(subject.source)
    subject.context_length = min(spec.max_position, sentence.max_tokens or spec.max_position)
    return (f"a {spec.family} encoder: {spec.num_layers} layers of {spec.hidden_size:,}, {spec.num_heads} heads, "
            f"{subject.parameters:,} parameters, {subject.context_length:,} tokens of context")


def _check_fallback(subject: Subject, spec: FallbackSpec) -> str:
    """A model that transformers runs: whether the tensors are all there is found out when it loads."""
    if subject.kind != "chat":
        raise ArtifactError("config.json", f"the architecture {spec.family!r} can't embed or score here")
    subject.parameters, subject.context_length = count_parameters(subject.source), spec.max_position
    subject.warn("config.json", f"{spec.family!r} has no native family: it runs through transformers' own code, slower")
    return f"a {spec.family} decoder, {subject.parameters:,} parameters, {spec.max_position:,} tokens of context"
