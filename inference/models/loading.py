"""Reads a checkpoint into the decoder's packed weights, tensor by tensor, and says how far it is."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from inference.artifacts.checkpoint import Checkpoint
from inference.artifacts.source import ModelSource
from inference.decoder_spec import DecoderSpec
from inference.kernels.linear import PANEL, Packed
from inference.layers.linear import fill, fill_bias, packed_bytes, packed_room, panels_for
from inference.layers.rotary import rotary_tables
from inference.models.decoder import Weights
from inference.spec import Mode

OnBytes = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class _Projection:
    """One linear layer of the decoder and where its rows go."""

    part: str  # without .weight
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
    start = f"layers.{layer}"
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    qkv, gate_up = rooms["qkv"], rooms["gate_up"]
    yield _Projection(part=f"{start}.q", room=qkv, layer=layer)
    yield _Projection(part=f"{start}.k", room=qkv, layer=layer, first_output=queries)
    yield _Projection(part=f"{start}.v", room=qkv, layer=layer, first_output=queries + keys)
    yield _Projection(part=f"{start}.o", room=rooms["output"], layer=layer)
    yield _Projection(part=f"{start}.gate", room=gate_up, layer=layer, step=2)
    yield _Projection(part=f"{start}.up", room=gate_up, layer=layer, first_output=PANEL, step=2)
    yield _Projection(part=f"{start}.down", room=rooms["down"], layer=layer)


def _projections(spec: DecoderSpec, rooms: dict[str, Packed]) -> Iterator[_Projection]:
    yield _Projection(part="embedding", room=rooms["embedding"])
    if not spec.tie_word_embeddings:
        yield _Projection(part="head", room=rooms["head"])
    for layer in range(spec.num_layers):
        yield from _layer_projections(spec, rooms, layer)


def _pack(checkpoint: Checkpoint, projection: _Projection) -> int:
    """Read, quantise and store one projection; return the bytes that it takes in the checkpoint."""
    at = {"first_output": projection.first_output, "step": projection.step}
    weight, bias = f"{projection.part}.weight", f"{projection.part}.bias"
    fill(projection.room, projection.layer, checkpoint.read(weight), **at)
    if bias in checkpoint:
        fill_bias(projection.room, projection.layer, checkpoint.read(bias), **at)
    return checkpoint.part_nbytes(weight)


def load_weights(
    source: ModelSource, spec: DecoderSpec, *, mode: Mode, positions: int, threads: int, on_bytes: OnBytes
) -> Weights:
    """Return the packed weights, with rotary tables for that many positions.

    on_bytes(done, total) counts the checkpoint's bytes. Raises ArtifactError naming a missing, extra or misshapen
    tensor.
    """
    checkpoint = Checkpoint(source, spec)
    rooms = _rooms(spec, mode)
    projections = list(_projections(spec, rooms))
    total = sum(checkpoint.part_nbytes(f"{projection.part}.weight") for projection in projections)
    done, lock = 0, threading.Lock()

    def pack(projection: _Projection) -> None:
        nonlocal done
        size = _pack(checkpoint, projection)
        with lock:
            done += size
            on_bytes(done, total)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(pack, projections))
    norms = {kind: np.stack([checkpoint.read(f"layers.{layer}.{kind}.weight") for layer in range(spec.num_layers)])
             for kind in ("attention_norm", "mlp_norm")}
    cosine, sine = rotary_tables(spec.rope, spec.head_dim, positions)
    return Weights(
        embedding=rooms["embedding"], head=rooms.get("head", rooms["embedding"]),
        qkv=rooms["qkv"], output=rooms["output"], gate_up=rooms["gate_up"], down=rooms["down"],
        attention_norm=norms["attention_norm"], mlp_norm=norms["mlp_norm"],
        final_norm=np.array(checkpoint.read("final_norm.weight")), cosine=cosine, sine=sine,
    )  # fmt: skip


def weights_bytes(weights: Weights) -> int:
    """Return the bytes that all weights hold; a tied head counts once."""
    packed = [weights.embedding, weights.qkv, weights.output, weights.gate_up, weights.down]
    if weights.head is not weights.embedding:
        packed.append(weights.head)
    plain = (weights.attention_norm, weights.mlp_norm, weights.final_norm, weights.cosine, weights.sine)
    return sum(packed_bytes(part) for part in packed) + sum(array.nbytes for array in plain)
