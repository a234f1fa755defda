"""The planner: a configuration and a wish in, a Plan out. Pure arithmetic, nothing is loaded or measured."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inference.machine_memory import POOL_SHARE, pool_bytes
from inference.planner.advice import reasons_against
from inference.planner.architecture import attention_kind, describe, shape_from_config
from inference.planner.cpu_encoder import CompiledEncoderLayout, CpuEncoderLayout, is_compiled
from inference.planner.cpu_engine import CpuEngineLayout, is_plain
from inference.planner.cpu_torch_engine import CpuTorchLayout
from inference.planner.device import Device
from inference.planner.layout import Layout, PlainLayout, StoredWeights
from inference.planner.precision import KV_BYTES, Format, kv_format, weight_format
from inference.planner.result import Line, Plan
from inference.planner.shape import ModelShape
from inference.planner.speed import Floors, flops_per_token
from inference.spec import EngineConfig, SpecError

DEFAULT_CONTEXT = 4096  # where a model doesn't say how far it goes
DEFAULT_BATCHED_TOKENS = 2048
MOST_REQUESTS = 1_000_000
RUNTIME_BYTES = 200_000_000
"""The CPU engine's process without a model: Python, numpy, numba and compiled kernels. Measured with a tiny model."""
TORCH_RUNTIME_BYTES = 370_000_000
"""The same where torch is loaded too."""
ENCODER_RUNTIME_BYTES = 175_000_000
"""The same for an engine that embeds or scores, with the compiled encoder. Measured with the demo model."""
TORCH_ENCODER_RUNTIME_BYTES = 230_000_000
"""The same for an encoder in torch, which needs no numba."""
TOKENIZER_BYTES = 500
"""What a tokenizer keeps for each token of its vocabulary."""
VOCABULARY_BYTES = 1_500
"""What tokenizer, detokeniser and grammars keep for each token of the vocabulary. Measured with the demo model."""
MOST_CONTEXT = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class AdapterSlots:
    """Room for so many LoRA adapters at once, each of this rank over every matrix that isn't an expert's."""

    slots: int
    rank: int = 16
    value_bytes: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.slots <= 10_000 or not 1 <= self.rank <= 10_000:
            raise SpecError("adapters", "slots must be 0 to 10,000 and rank 1 to 10,000")

    def nbytes(self, shape: ModelShape) -> int:
        return self.slots * self.rank * _ports(shape) * self.value_bytes


@dataclass(frozen=True, kw_only=True)
class KvRoom:
    """What an engine gives its KV cache. set_bytes: a set size. free_bytes: without one, what the device has free
    before the model is there; the engine takes a part of what then remains. Neither: all that the memory leaves.
    """

    set_bytes: int | None = None
    free_bytes: int | None = None

    def most(self, taken: int) -> int | None:
        """Return the most bytes, when weights and process take so many; None for whatever the memory leaves."""
        if self.set_bytes is not None:
            return self.set_bytes
        return None if self.free_bytes is None else pool_bytes(self.free_bytes - taken)

    def formula(self, taken: int) -> str:
        if self.set_bytes is not None:
            return f"the {self.set_bytes:,} bytes that are set"
        return f"{POOL_SHARE:g} × ({self.free_bytes:,} bytes free − {taken:,} of weights and runtime)"


def _ports(shape: ModelShape) -> int:
    return sum(sum(mixer.ports for mixer in layer.mixers) + layer.mlp.ports for layer in shape.layers)


def plan(
    config: Mapping[str, Any], *, device: Device, context: int | None = None, concurrency: int = 1,
    dtype: str | None = None, kv_dtype: str | None = None, tp: int = 1, adapters: AdapterSlots | None = None,
    stored: StoredWeights | None = None, batched_tokens: int = DEFAULT_BATCHED_TOKENS, room: KvRoom = KvRoom(),
) -> Plan:
    """Return the plan for a model on a device, for any engine that stores plain arrays.

    config: as config.json has it. context: tokens of prompt and reply of each request; None takes the model's own.
    concurrency: requests at once. dtype: of the weights; None takes what is stored, or what the config names. kv_dtype:
    None takes 16 bits, or the config's type. tp: tensor-parallel ranks, each on such a device. stored: what the files'
    headers say (inference.planner.files). room: of the KV cache. Raises SpecError, naming the key or argument.
    """
    shape = shape_from_config(config)
    known = weight_format(dtype or _own_format(shape))
    layout = PlainLayout(shape, weights=known, kv_dtype=kv_format(kv_dtype or _own_kv(shape)), tp=tp,
                         batched_tokens=batched_tokens, stored=stored if dtype is None else None)
    return _planned(shape, layout, known, device, context=context, concurrency=concurrency, tp=tp, adapters=adapters,
                    stored=stored, runtime=device.runtime_bytes, room=room)


def plan_cpu_engine(
    config: Mapping[str, Any], *, engine: EngineConfig, device: Device, threads: int, context: int | None = None,
    concurrency: int | None = None, stored: StoredWeights | None = None, free_bytes: int | None = None,
) -> Plan:
    """Return the plan for Parley's own engine on a CPU with this configuration, as it really lies in memory.

    context and concurrency: None takes the engine's max_model_len and max_num_seqs. free_bytes: what the machine has
    free before the load, for a KV cache without a set size as the engine would make it. Raises SpecError.
    """
    shape = shape_from_config(config)
    layout, runtime = _cpu_layout(shape, engine, threads)
    return _planned(shape, layout, weight_format(layout.dtype), device, context=context or engine.max_model_len,
                    concurrency=engine.max_num_seqs if concurrency is None else concurrency, tp=1, adapters=None,
                    stored=stored, runtime=runtime,
                    room=KvRoom(set_bytes=engine.kv_cache_bytes, free_bytes=free_bytes))


def _cpu_layout(shape: ModelShape, engine: EngineConfig, threads: int) -> tuple[Layout, int]:
    """Return the layout of the runner that the engine takes for this shape, and what its process has without it."""
    tokenizer, vocabulary = shape.vocabulary * TOKENIZER_BYTES, shape.vocabulary * VOCABULARY_BYTES
    if shape.kind == "encoder" and is_compiled(shape):
        return CompiledEncoderLayout(shape, mode=engine.mode, config=engine), ENCODER_RUNTIME_BYTES + tokenizer
    if shape.kind == "encoder":
        return CpuEncoderLayout(shape, config=engine), TORCH_ENCODER_RUNTIME_BYTES + tokenizer
    if is_plain(shape):
        return CpuEngineLayout(shape, mode=engine.mode, config=engine, threads=threads), RUNTIME_BYTES + vocabulary
    return CpuTorchLayout(shape, mode=engine.mode, config=engine), TORCH_RUNTIME_BYTES + vocabulary


def _own_format(shape: ModelShape) -> str:
    return shape.quantisation or shape.precision


def _own_kv(shape: ModelShape) -> str:
    return shape.precision if shape.precision in KV_BYTES else "bfloat16"


class _Memory:
    """The sum that has to fit, as a function of context and concurrency."""

    def __init__(self, layout: Layout, adapter_bytes: int, runtime: int, room: KvRoom) -> None:
        self.layout, self.adapter_bytes, self.runtime, self.room = layout, adapter_bytes, runtime, room

    def fixed(self, context: int) -> int:
        """Return what weights, adapters and the process take."""
        return self.layout.weights_bytes(context) + self.adapter_bytes + self.runtime

    def kv_most(self, context: int) -> int | None:
        """Return the most that the KV cache gets; None for whatever the memory leaves, and for what keeps none."""
        return self.room.most(self.fixed(context)) if self.layout.request_bytes(context) else None

    def kv(self, context: int, concurrency: int) -> int:
        wanted, most = concurrency * self.layout.request_bytes(context), self.kv_most(context)
        return wanted if most is None or self.room.set_bytes is None and wanted <= most else most

    def total(self, context: int, concurrency: int) -> int:
        return (self.fixed(context) + self.kv(context, concurrency)
                + self.layout.activation_bytes(context, concurrency))

    def fits(self, context: int, concurrency: int, memory_bytes: int) -> bool:
        """Whether all of these requests have their KV cache, and everything the memory that there is."""
        wanted = concurrency * self.layout.request_bytes(context)
        return wanted <= self.kv(context, concurrency) and self.total(context, concurrency) <= memory_bytes


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to most for which fits holds, 0 for none. fits must be monotone."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _planned(
    shape: ModelShape, layout: Layout, known: Format, device: Device, *, context: int | None, concurrency: int, tp: int,
    adapters: AdapterSlots | None, stored: StoredWeights | None, runtime: int, room: KvRoom,
) -> Plan:
    context = context if context is not None else shape.context or DEFAULT_CONTEXT
    if not 1 <= context <= MOST_CONTEXT:
        raise SpecError("context", "must be a positive number of tokens")
    if not 1 <= concurrency <= MOST_REQUESTS:
        raise SpecError("concurrency", f"must be 1 to {MOST_REQUESTS:,} requests")
    memory = _Memory(layout, -(-adapters.nbytes(shape) // tp) if adapters else 0, runtime, room)
    total = memory.total(context, concurrency)
    most_context = shape.context or MOST_CONTEXT
    max_concurrency = largest(lambda n: memory.fits(context, n, device.memory_bytes), MOST_REQUESTS)
    max_context = largest(lambda n: memory.fits(n, concurrency, device.memory_bytes), most_context)
    floors = Floors(shape, layout, device, weight_bits=known.bits, context=context, concurrency=concurrency, tp=tp)
    parameters = stored.parameters if stored and stored.parameters else shape.total
    fits = memory.fits(context, concurrency, device.memory_bytes)
    return Plan(
        architecture=describe(shape), device=device.name, memory_bytes=device.memory_bytes, context=context,
        concurrency=concurrency, tp=tp, dtype=layout.dtype, kv_dtype=layout.kv_dtype, parameters_total=parameters,
        parameters_active=parameters - shape.unvisited, weights_bytes=layout.weights_bytes(context),
        adapter_bytes=memory.adapter_bytes, attention=attention_kind(shape),
        kv_bytes_per_token=layout.kv_bytes_per_token, kv_bytes_per_request=layout.request_bytes(context),
        kv_bytes=memory.kv(context, concurrency), kv_room_bytes=memory.kv_most(context),
        activation_bytes=layout.activation_bytes(context, concurrency), runtime_bytes=runtime, total_bytes=total,
        fits=fits, max_concurrency=max_concurrency, max_context=max_context,
        prefill_flops_per_token=flops_per_token(shape), decode_flops_per_token=flops_per_token(shape),
        ttft_floor_s=floors.ttft_s, tpot_floor_s=floors.tpot_s,
        lines=(*_parameter_lines(shape, parameters, stored),
               *_memory_lines(shape, layout, memory, adapters, device, context, concurrency),
               *_limit_lines(memory, device, context, concurrency, max_concurrency, max_context), *floors.lines()),
        reasons=() if fits else reasons_against(
            shape, device, total=total, weights=layout.weights_bytes(context), kv=memory.kv(context, concurrency),
            kv_wanted=concurrency * layout.request_bytes(context), context=context, concurrency=concurrency,
            max_concurrency=max_concurrency, max_context=max_context),
        notes=(*shape.notes, *_context_note(shape, context), *_runtime_note(device, runtime)),
    )


def _context_note(shape: ModelShape, context: int) -> tuple[str, ...]:
    if shape.context and context > shape.context:
        return (f"The model itself goes to {shape.context:,} tokens; {context:,} were asked for.",)
    return ()


def _runtime_note(device: Device, runtime: int) -> tuple[str, ...]:
    if device.kind == "cuda" and not runtime:
        return ("What the device's own context takes, a few hundred megabytes, is not counted.",)
    return ()


def _parameter_lines(shape: ModelShape, parameters: int, stored: StoredWeights | None) -> Iterator[Line]:
    others = shape.positions + shape.pooler + shape.other
    layers = shape.total - shape.embedding - shape.head - others
    head = f" + {shape.head:,} in the output matrix" if shape.head else ""
    tied = " (also the output matrix)" if shape.tied and shape.kind == "decoder" else ""
    if stored and stored.parameters:
        yield Line("Parameters", "counted from the headers of the files, tied embeddings once", parameters,
                   "parameters")
    else:
        yield Line("Parameters", f"{shape.embedding:,} in the embedding{tied}{head} + {layers:,} in "
                   f"{len(shape.layers)} layers + {others:,} others", parameters, "parameters")
    mixtures = [layer.mlp for layer in shape.layers if layer.mlp.experts]
    if mixtures:
        first = mixtures[0]
        yield Line("Active parameters", f"{parameters:,} − {len(mixtures)} layers × ({first.experts} − {first.active}) "
                   f"experts × {first.expert:,}", parameters - shape.unvisited, "parameters")
    else:
        yield Line("Active parameters", "all", parameters, "parameters")


def _memory_lines(shape: ModelShape, layout: Layout, memory: _Memory, adapters: AdapterSlots | None, device: Device,
                  context: int, concurrency: int) -> Iterator[Line]:
    yield from layout.weights_lines(context)
    if adapters and adapters.slots:
        yield Line("Adapters", f"{adapters.slots} slots × rank {adapters.rank} × {_ports(shape):,} inputs and "
                   f"outputs × {adapters.value_bytes} bytes", memory.adapter_bytes, "bytes")
    if request := layout.request_bytes(context):
        yield from layout.kv_lines(context)
        kv, wanted = memory.kv(context, concurrency), concurrency * request
        words = f"{concurrency:,} requests × {request:,} bytes for {context:,} tokens each"
        if kv != wanted:
            words = f"{memory.room.formula(memory.fixed(context))}; {words} are {wanted:,}"
        yield Line("KV cache", words, kv, "bytes")
    yield Line("Activations", layout.activation_formula(context, concurrency),
               layout.activation_bytes(context, concurrency), "bytes")
    if memory.runtime:
        yield Line("Runtime", "the process before it holds a model", memory.runtime, "bytes")
    yield Line("Total", "weights + adapters + KV cache + activations + runtime", memory.total(context, concurrency),
               "bytes")


def _limit_lines(memory: _Memory, device: Device, context: int, concurrency: int, max_concurrency: int,
                 max_context: int) -> Iterator[Line]:
    yield Line("Memory", f"{device.name}" + (f": {device.source}" if device.source else ""), device.memory_bytes,
               "bytes")
    if not memory.layout.request_bytes(context):
        return  # a request leaves nothing behind, so there is no limit to tell
    at = max(1, max_concurrency)
    yield Line("Most requests", f"the most whose total is at most {device.memory_bytes:,} bytes, with {context:,} "
               f"tokens each: {at:,} take {memory.total(context, at):,}", max_concurrency, "requests")
    at = max(1, max_context)
    yield Line("Longest context", f"the most tokens (up to the model's own limit) for {concurrency:,} requests: {at:,} "
               f"take {memory.total(at, concurrency):,} bytes", max_context, "tokens")
