"""What a plan says: each figure with the arithmetic that gave it, so that nobody has to believe a bare number."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

AttentionKind = Literal["mha", "gqa", "mqa", "mla", "hybrid", "none"]
"""How keys and values are kept: `hybrid` mixes attention with linear (recurrent) layers, `none` has no attention."""

Unit = Literal["bytes", "parameters", "FLOP", "seconds", "tokens", "requests", "layers"]


@dataclass(frozen=True)
class Line:
    """One step of the arithmetic: what it is, the formula with its numbers in it, the value and the value's unit."""

    name: str
    formula: str
    value: float
    unit: Unit


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model's shape, for showing it in words.

    context: the model's own limit in tokens, 0 when it doesn't say. mixture_layers: layers with experts;
    sliding_layers: those that see `window` tokens at most; linear_layers: those with a state in place of a KV cache.
    """

    family: str
    kind: Literal["decoder", "encoder"]
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    experts: int
    experts_active: int
    mixture_layers: int
    sliding_layers: int
    window: int
    linear_layers: int
    tied_embeddings: bool
    precision: str
    attention: AttentionKind


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Whether a model fits a device, for how many requests of which length, and how fast it can be at best.

    All `…_bytes` are for one device: with tensor parallelism, for one rank. kv_bytes: of all requests at full context,
    with the states of linear layers, or less where the engine gives them less: kv_room_bytes is the most, None what
    the memory leaves. runtime_bytes: what the process takes before it holds a model. total_bytes: the
    sum of weights, adapters, KV, activations and runtime. fits, max_concurrency (requests of the planned context) and
    max_context (for the planned requests, at most the model's own) are for the device's memory and that room.
    ttft_floor_s: no engine can begin the reply to a prompt of the planned context sooner; tpot_floor_s: nor give each
    further token faster, with the planned requests in one step. Both None when the device's speed isn't known.
    reasons: what doesn't fit and what would make it fit, in words; empty when it fits. notes: what was assumed.
    """

    architecture: Architecture
    device: str
    memory_bytes: int
    context: int
    concurrency: int
    tp: int
    dtype: str
    kv_dtype: str
    parameters_total: int
    parameters_active: int
    weights_bytes: int
    adapter_bytes: int
    attention: AttentionKind
    kv_bytes_per_token: int
    kv_bytes_per_request: int
    kv_bytes: int
    kv_room_bytes: int | None
    activation_bytes: int
    runtime_bytes: int
    total_bytes: int
    fits: bool
    max_concurrency: int
    max_context: int
    prefill_flops_per_token: int
    decode_flops_per_token: int
    ttft_floor_s: float | None
    tpot_floor_s: float | None
    lines: tuple[Line, ...]
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values: parameters and flops_per_token are objects of two."""
        values = asdict(self)
        total, active = values.pop("parameters_total"), values.pop("parameters_active")
        prefill, decode = values.pop("prefill_flops_per_token"), values.pop("decode_flops_per_token")
        return values | {
            "parameters": {"total": total, "active": active},
            "flops_per_token": {"prefill": prefill, "decode": decode},
            "lines": [asdict(line) for line in self.lines],
            "reasons": list(self.reasons),
            "notes": list(self.notes),
        }
