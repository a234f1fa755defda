"""Checks a decoder's weights against its spec, so that a missing or misshapen tensor is found without loading it."""

import math

from inference.artifacts.errors import ArtifactError
from inference.artifacts.families import is_unused, stored_tensors
from inference.artifacts.gguf import can_dequantise
from inference.artifacts.names import HEAD
from inference.artifacts.source import ModelSource
from inference.artifacts.tensors import FLOAT_DTYPES, TensorInfo
from inference.decoder_spec import DecoderSpec

NOT_FLOATING = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"}
LEGACY_BUFFER = ".rotary_emb.inv_freq"  # saved by old versions of transformers; computed from the config instead


def check_decoder_weights(source: ModelSource, spec: DecoderSpec) -> None:
    """Raise ArtifactError unless source holds exactly the tensors of spec, in shapes that fit and types that are read.

    A copy of the tied head is allowed: it is not read.
    """
    expected = {name: stored.shape for name, stored in stored_tensors(spec, source.tensors).items()}
    allowed = {HEAD: (spec.vocab_size, spec.hidden_size)} if spec.tie_word_embeddings else {}
    for name, shape in expected.items():
        if name not in source.tensors:
            raise ArtifactError("weights", f"tensor {name!r} is missing")
        _check_tensor(source.tensors[name], shape)
    for name, info in source.tensors.items():
        if name in allowed:
            _check_tensor(info, allowed[name])
        elif name not in expected and not name.endswith(LEGACY_BUFFER) and not is_unused(spec, name):
            raise ArtifactError("weights", f"tensor {name[:100]!r} is not one of a {spec.family} decoder "
                                           f"with {spec.num_layers} layers")


def _check_tensor(info: TensorInfo, shape: tuple[int, ...]) -> None:
    if info.shape != shape:
        raise ArtifactError("weights", f"tensor {info.name!r} has the shape {list(info.shape)}, expected {list(shape)}")
    if info.dtype not in FLOAT_DTYPES and not info.quantised and not can_dequantise(info.dtype):
        raise ArtifactError("weights", f"tensor {info.name!r} is stored as {info.dtype}, which can't be read")


def count_parameters(source: ModelSource) -> int:
    """Return how many parameters the weights hold; a stored copy of a tied head and integer buffers don't count."""
    tied = bool(source.config.get("tie_word_embeddings"))
    return sum(math.prod(info.shape) for name, info in source.tensors.items()
               if info.dtype not in NOT_FLOATING and not name.endswith(LEGACY_BUFFER) and not (tied and name == HEAD))
