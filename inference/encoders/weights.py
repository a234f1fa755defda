"""Reads any family's checkpoint into one form, tensor by tensor; what is missing or misshapen is refused by name."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.encoders.names import FAMILIES, LEGACY_ENDINGS, SPARSE_HEAD, VECTOR_HEAD, FamilyNames
from inference.encoders.spec import EncoderSpec

Float32 = npt.NDArray[np.float32]
OnBytes = Callable[[int, int], None]


@dataclass(frozen=True)
class Linear:
    """A layer x @ weight.T + bias. weight: [outputs, inputs]; bias: [outputs] or None."""

    weight: Float32
    bias: Float32 | None


@dataclass(frozen=True)
class Norm:
    """A layer norm's weight and bias, [size] each; bias None without one."""

    weight: Float32
    bias: Float32 | None


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """One block. qkv: queries, keys and values one below the other. attention_norm: None before a first pre-norm."""

    qkv: Linear
    output: Linear
    attention_norm: Norm | None
    gate: Linear | None
    up: Linear
    down: Linear
    mlp_norm: Norm


@dataclass(frozen=True, kw_only=True)
class HeadWeights:
    """A classifier: labels = classifier(norm(activation(dense(hidden))))."""

    dense: Linear
    norm: Norm | None
    classifier: Linear


@dataclass(frozen=True, kw_only=True)
class EncoderWeights:
    """All weights of an encoder in float32; parts that the family lacks are None. relative_bias: [buckets, heads]."""

    word: Float32
    position: Float32 | None
    token_type: Float32 | None
    embedding_norm: Norm
    layers: tuple[LayerWeights, ...]
    final_norm: Norm | None
    relative_bias: Float32 | None
    head: HeadWeights | None
    sparse: Linear | None
    vectors: Linear | None


class _Reader:
    """Takes tensors by name and shape, once each, and knows afterwards which were not taken."""

    def __init__(self, source: ModelSource, on_bytes: OnBytes) -> None:
        self._source = source
        self._on_bytes = on_bytes
        self._total = sum(info.nbytes for info in source.tensors.values())
        self._done = 0
        self.taken: set[str] = set()

    def tensor(self, name: str, *shape: int) -> Float32:
        info = self._source.tensors.get(name)
        if info is None:
            for new, old in LEGACY_ENDINGS.items():
                if name.endswith(new) and (legacy := name.removesuffix(new) + old) in self._source.tensors:
                    return self.tensor(legacy, *shape)
            raise ArtifactError("weights", f"tensor {name!r} is missing")
        if tuple(info.shape) != shape:
            raise ArtifactError("weights", f"tensor {name!r} has the shape {list(info.shape)}, expected {list(shape)}")
        self.taken.add(name)
        self._done += info.nbytes
        values = self._source.read_float32(name)
        self._on_bytes(self._done, self._total)
        return values

    def linear(self, name: str, outputs: int, inputs: int, *, bias: bool) -> Linear:
        return Linear(self.tensor(f"{name}.weight", outputs, inputs),
                      self.tensor(f"{name}.bias", outputs) if bias else None)

    def norm(self, name: str, size: int, *, bias: bool) -> Norm:
        return Norm(self.tensor(f"{name}.weight", size), self.tensor(f"{name}.bias", size) if bias else None)


def read_encoder(source: ModelSource, spec: EncoderSpec, *, on_bytes: OnBytes = lambda done, total: None
                 ) -> EncoderWeights:
    """Read all weights of an encoder, and refuse those that it can't have. Raises ArtifactError."""
    names = FAMILIES[spec.family]
    prefix = names.prefix_of(source.tensors)
    reader = _Reader(source, on_bytes)
    hidden = spec.hidden_size
    head = _read_head(reader, spec, names, prefix) if spec.labels else None
    weights = EncoderWeights(
        word=reader.tensor(f"{prefix}{names.word}.weight", spec.vocab_size, hidden),
        position=reader.tensor(f"{prefix}{names.position}.weight", spec.position_rows, hidden)
        if spec.position_rows else None,
        token_type=reader.tensor(f"{prefix}{names.token_type}.weight", spec.token_types, hidden)
        if spec.token_types else None,
        embedding_norm=reader.norm(f"{prefix}{names.embedding_norm}", hidden, bias=spec.norm_bias),
        layers=tuple(_read_layer(reader, spec, names, prefix, layer) for layer in range(spec.num_layers)),
        final_norm=reader.norm(f"{prefix}{names.final_norm}", hidden, bias=spec.norm_bias)
        if names.final_norm else None,
        relative_bias=reader.tensor(f"{prefix}{names.relative_bias}.weight", spec.relative_buckets, spec.num_heads)
        if spec.relative_buckets else None,
        head=head,
        sparse=reader.linear(SPARSE_HEAD, 1, hidden, bias=True) if f"{SPARSE_HEAD}.weight" in source.tensors else None,
        vectors=_read_vectors(reader, source, hidden),
    )  # fmt: skip
    _refuse_others(source, reader.taken, spec, names, prefix)
    return weights


def _read_layer(reader: _Reader, spec: EncoderSpec, names: FamilyNames, prefix: str, layer: int) -> LayerWeights:
    at = prefix + names.layer.format(layer=layer)
    hidden, inner, bias = spec.hidden_size, spec.intermediate_size, spec.attention_bias
    if names.qkv is not None:
        qkv = reader.linear(at + names.qkv, 3 * hidden, hidden, bias=bias)
    else:
        qkv = _stack([reader.linear(at + name, hidden, hidden, bias=bias)
                      for name in (names.query, names.key, names.value)])
    gate: Linear | None = None
    if names.gate_up is not None:
        gate, up = _halves(reader.linear(at + names.gate_up, 2 * inner, hidden, bias=spec.mlp_bias))
    else:
        up = reader.linear(at + names.up, inner, hidden, bias=spec.mlp_bias)
        if names.gate is not None:
            gate = reader.linear(at + names.gate, inner, hidden, bias=spec.mlp_bias)
    has_norm = not (spec.pre_norm and layer == 0)
    return LayerWeights(
        qkv=qkv, output=reader.linear(at + names.output, hidden, hidden, bias=bias),
        attention_norm=reader.norm(at + names.attention_norm, hidden, bias=spec.norm_bias) if has_norm else None,
        gate=gate, up=up, down=reader.linear(at + names.down, hidden, inner, bias=spec.mlp_bias),
        mlp_norm=reader.norm(at + names.mlp_norm, hidden, bias=spec.norm_bias),
    )


def _read_head(reader: _Reader, spec: EncoderSpec, names: FamilyNames, prefix: str) -> HeadWeights:
    head, hidden = names.head, spec.hidden_size
    if head is None:
        raise ArtifactError("config.json", f"a classifier over {spec.family} is not supported")
    return HeadWeights(
        dense=reader.linear((prefix if head.dense_inside else "") + head.dense, hidden, hidden, bias=spec.head_bias),
        norm=reader.norm(head.norm, hidden, bias=spec.norm_bias) if head.norm else None,
        classifier=reader.linear(head.classifier, spec.labels, hidden, bias=True),
    )


def _read_vectors(reader: _Reader, source: ModelSource, hidden: int) -> Linear | None:
    info = source.tensors.get(f"{VECTOR_HEAD}.weight")
    return reader.linear(VECTOR_HEAD, info.shape[0], hidden, bias=True) if info is not None and info.shape else None


def _stack(parts: list[Linear]) -> Linear:
    biases = [part.bias for part in parts if part.bias is not None]
    return Linear(np.concatenate([part.weight for part in parts]), np.concatenate(biases) if biases else None)


def _halves(both: Linear) -> tuple[Linear, Linear]:
    half = len(both.weight) // 2
    biases = (None, None) if both.bias is None else (both.bias[:half], both.bias[half:])
    return Linear(both.weight[:half], biases[0]), Linear(both.weight[half:], biases[1])


def _refuse_others(source: ModelSource, taken: set[str], spec: EncoderSpec, names: FamilyNames, prefix: str) -> None:
    for name in source.tensors:
        inner = name.removeprefix(prefix)
        unread = any(part.startswith(ignored) or part.endswith(ignored)
                     for ignored in names.ignored for part in (name, inner))
        if name not in taken and not unread:
            raise ArtifactError("weights", f"tensor {name[:100]!r} is not one of a {spec.family} encoder "
                                           f"with {spec.num_layers} layers")


def check_encoder(source: ModelSource, spec: EncoderSpec) -> None:
    """Raise ArtifactError unless the checkpoint holds exactly an encoder of this shape. No weight is read."""
    read_encoder(_ShapesOnly(source), spec)


class _ShapesOnly(ModelSource):
    """A source whose tensors have their shapes and no content."""

    def __init__(self, source: ModelSource) -> None:
        self.tensors = source.tensors
        self.config, self.generation_config = source.config, source.generation_config

    def read_raw(self, name: str) -> npt.NDArray[np.uint8]:
        raise NotImplementedError

    def read_float32(self, name: str) -> Float32:
        return np.broadcast_to(np.float32(0), self.tensors[name].shape)
