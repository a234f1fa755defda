"""Reads a checkpoint into the decoder's packed weights, tensor by tensor, and says how far it is."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.decoder_spec import DecoderSpec
from inference.kernels.linear import PANEL, Packed
from inference.layers.linear import fill, fill_bias, packed_bytes, packed_room, panels_for
from inference.layers.rotary import rotary_tables
from inference.models.decoder import Weights
from inference.models.families import llama
from inference.spec import Mode

OnBytes = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class _Projection:
    """One linear layer of the checkpoint and where its rows go."""

    name: str  # without .weight
    shape: tuple[int, int]
    room: Packed
    layer: int = 0
    first_output: int = 0
    step: int = 1


def _rooms(spec: DecoderSpec, mode: Mode) -> dict[str, Packed]:
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    inner, vocabulary = panels_for(spec.intermediate_size), panels_for(spec.vocab_size)
    sizes = {
        "qkv": (spec.num_layers, panels_for(queries + 2 * keys), spec.hidden_size),
        "output": (spec.num_layers, panels_for(spec.hidden_size), queries),
        "gate_up": (spec.num_layers, 2 * inner, spec.hidden_size),
        "down": (spec.num_layers, panels_for(spec.hidden_size), spec.intermediate_size),
        "embedding": (1, vocabulary, spec.hidden_size),
    }
    if not spec.tie_word_embeddings:
        sizes["head"] = (1, vocabulary, spec.hidden_size)
    return {
        name: packed_room(layers=layers, panels=panels, inputs=inputs, mode=mode)
        for name, (layers, panels, inputs) in sizes.items()
    }


def _layer_projections(spec: DecoderSpec, rooms: dict[str, Packed], layer: int) -> Iterator[_Projection]:
    names = llama.layer_names(layer)
    hidden, inner = spec.hidden_size, spec.intermediate_size
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    qkv, gate_up = rooms["qkv"], rooms["gate_up"]
    yield _Projection(name=names.query, shape=(queries, hidden), room=qkv, layer=layer)
    yield _Projection(name=names.key, shape=(keys, hidden), room=qkv, layer=layer, first_output=queries)
    yield _Projection(name=names.value, shape=(keys, hidden), room=qkv, layer=layer, first_output=queries + keys)
    yield _Projection(name=names.output, shape=(hidden, queries), room=rooms["output"], layer=layer)
    yield _Projection(name=names.gate, shape=(inner, hidden), room=gate_up, layer=layer, step=2)
    yield _Projection(name=names.up, shape=(inner, hidden), room=gate_up, layer=layer, first_output=PANEL, step=2)
    yield _Projection(name=names.down, shape=(hidden, inner), room=rooms["down"], layer=layer)


def _projections(spec: DecoderSpec, rooms: dict[str, Packed]) -> Iterator[_Projection]:
    table = (spec.vocab_size, spec.hidden_size)
    yield _Projection(name=llama.EMBEDDING.removesuffix(".weight"), shape=table, room=rooms["embedding"])
    if not spec.tie_word_embeddings:
        yield _Projection(name=llama.HEAD, shape=table, room=rooms["head"])
    for layer in range(spec.num_layers):
        yield from _layer_projections(spec, rooms, layer)


def _check(source: ModelSource, name: str, shape: tuple[int, ...]) -> None:
    info = source.tensors.get(name)
    if info is None:
        raise ArtifactError(name, "this tensor is missing from the checkpoint")
    if tuple(info.shape) != shape:
        raise ArtifactError(name, f"has the shape {list(info.shape)}; the configuration makes it {list(shape)}")


def _vector(source: ModelSource, name: str, size: int) -> npt.NDArray[np.float32]:
    _check(source, name, (size,))
    return source.read_float32(name)


def _pack(source: ModelSource, projection: _Projection) -> int:
    """Read, quantise and store one projection; return the bytes that it takes in the checkpoint."""
    at = {"first_output": projection.first_output, "step": projection.step}
    name = f"{projection.name}.weight"
    fill(projection.room, projection.layer, source.read_float32(name), **at)
    bias = f"{projection.name}.bias"
    if bias in source.tensors:
        fill_bias(projection.room, projection.layer, _vector(source, bias, projection.shape[0]), **at)
    return source.tensors[name].nbytes


def load_weights(
    source: ModelSource, spec: DecoderSpec, *, mode: Mode, positions: int, threads: int, on_bytes: OnBytes
) -> Weights:
    """Return the packed weights, with rotary tables for that many positions.

    on_bytes(done, total) counts the checkpoint's bytes. Raises ArtifactError naming a missing or misshapen tensor.
    """
    rooms = _rooms(spec, mode)
    projections = list(_projections(spec, rooms))
    for projection in projections:
        _check(source, f"{projection.name}.weight", projection.shape)
    total = sum(source.tensors[f"{projection.name}.weight"].nbytes for projection in projections)
    done, lock = 0, threading.Lock()

    def pack(projection: _Projection) -> None:
        nonlocal done
        size = _pack(source, projection)
        with lock:
            done += size
            on_bytes(done, total)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(pack, projections))
    names = [llama.layer_names(layer) for layer in range(spec.num_layers)]
    hidden = spec.hidden_size
    cosine, sine = rotary_tables(spec.rope, spec.head_dim, positions)
    return Weights(
        embedding=rooms["embedding"], head=rooms.get("head", rooms["embedding"]),
        qkv=rooms["qkv"], output=rooms["output"], gate_up=rooms["gate_up"], down=rooms["down"],
        attention_norm=np.stack([_vector(source, name.attention_norm, hidden) for name in names]),
        mlp_norm=np.stack([_vector(source, name.mlp_norm, hidden) for name in names]),
        final_norm=np.array(_vector(source, llama.FINAL_NORM, hidden)), cosine=cosine, sine=sine,
    )  # fmt: skip


def weights_bytes(weights: Weights) -> int:
    """Return the bytes that all weights hold; a tied head counts once."""
    packed = [weights.embedding, weights.qkv, weights.output, weights.gate_up, weights.down]
    if weights.head is not weights.embedding:
        packed.append(weights.head)
    plain = (weights.attention_norm, weights.mlp_norm, weights.final_norm, weights.cosine, weights.sine)
    return sum(packed_bytes(part) for part in packed) + sum(array.nbytes for array in plain)
