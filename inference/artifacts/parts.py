"""The tensors that a decoder of a spec is made of, by names of our own, and where a checkpoint's tensors put them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from inference.decoder_spec import DecoderSpec, MlaSpec, MoeSpec, NormPlaces

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Names = Mapping[str, tuple[str, ...]]
"""The stem of a stored tensor's name (without .weight or .bias) → the decoder's parts that its rows hold, in order."""


@dataclass(frozen=True)
class Stored:
    """One tensor of a checkpoint: its shape, and the decoder's parts that its first axis holds, with their rows.

    lead: so many first axes hold the rows, as one. arrange: brings the values as stored into that order.
    """

    shape: Shape
    holds: tuple[tuple[str, int], ...]
    lead: int = 1
    arrange: Callable[[Array], Array] | None = None

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.holds)

    def renamed(self, prefix: str) -> "Stored":
        """Return the same with a prefix before the name of each part."""
        return replace(self, holds=tuple((prefix + part, rows) for part, rows in self.holds))

    def as_rows(self, values: Array) -> Array:
        """Return the values [shape] as rows, [rows, ...], in the order of holds."""
        values = values if self.arrange is None else self.arrange(values)
        return values.reshape(-1, *values.shape[self.lead:])


def top_parts(spec: DecoderSpec) -> dict[str, Shape]:
    """Return the parts outside of the layers, with their shapes. A tied head is no part of its own."""
    table = (spec.vocab_size, spec.hidden_size)
    parts: dict[str, Shape] = {"embedding.weight": table, "final_norm.weight": (spec.hidden_size,)}
    if spec.norm_bias:
        parts["final_norm.bias"] = (spec.hidden_size,)
    if not spec.tie_word_embeddings:
        parts["head.weight"] = table
    return parts


def layer_parts(spec: DecoderSpec, index: int) -> dict[str, Shape]:
    """Return the parts of a layer, counted from 0, with their shapes. [out, in] for projections."""
    parts = _norm_parts(spec)
    parts |= _latent_parts(spec, spec.mla) if spec.mla else _attention_parts(spec)
    if spec.moe is not None and spec.layer(index).moe:
        return parts | moe_parts(spec.moe, spec.hidden_size)
    inner, hidden = spec.intermediate_size, spec.hidden_size
    return parts | _linears({"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)},
                            biased=("gate", "up", "down") if spec.mlp_bias else ())


def _linears(shapes: Mapping[str, Shape], biased: tuple[str, ...] = ()) -> dict[str, Shape]:
    weights = {f"{name}.weight": shape for name, shape in shapes.items()}
    return weights | {f"{name}.bias": shapes[name][:1] for name in biased}


def _norm_parts(spec: DecoderSpec) -> dict[str, Shape]:
    places: dict[NormPlaces, tuple[str, ...]] = {
        "before": ("attention_norm", "mlp_norm"),
        "after": ("attention_post_norm", "mlp_post_norm"),
        "both": ("attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm"),
    }
    suffixes = (".weight", ".bias") if spec.norm_bias else (".weight",)
    return {name + suffix: (spec.hidden_size,) for name in places[spec.norm_places] for suffix in suffixes}


def _attention_parts(spec: DecoderSpec) -> dict[str, Shape]:
    hidden, queries, keys = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    biased = (("q", "k", "v") if spec.attention_bias else ()) + (("o",) if spec.output_bias else ())
    parts = _linears({"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}, biased)
    if spec.qk_norm != "none":
        whole = spec.qk_norm == "whole"
        parts["q_norm.weight"] = (queries if whole else spec.head_dim,)
        parts["k_norm.weight"] = (keys if whole else spec.head_dim,)
    if spec.sinks:
        parts["sinks"] = (spec.num_heads,)
    return parts


def _latent_parts(spec: DecoderSpec, mla: MlaSpec) -> dict[str, Shape]:
    hidden, latent = spec.hidden_size, mla.kv_lora_rank
    queries = spec.num_heads * (mla.nope_head_dim + mla.rope_head_dim)
    shapes = {"kv_a": (latent + mla.rope_head_dim, hidden), "o": (hidden, spec.num_heads * mla.v_head_dim),
              "kv_b": (spec.num_heads * (mla.nope_head_dim + mla.v_head_dim), latent)}
    norms: dict[str, Shape] = {"kv_a_norm.weight": (latent,)}
    if mla.q_lora_rank is None:
        shapes["q"] = (queries, hidden)
    else:
        shapes |= {"q_a": (mla.q_lora_rank, hidden), "q_b": (queries, mla.q_lora_rank)}
        norms["q_a_norm.weight"] = (mla.q_lora_rank,)
    biased = (*(("q_a",) if mla.q_lora_rank else ()), "kv_a", "o") if spec.attention_bias else ()
    return _linears(shapes, biased) | norms


def moe_parts(moe: MoeSpec, hidden: int) -> dict[str, Shape]:
    """Return the parts of a mixture of experts: each expert's own three projections, the router, what all share."""
    inner, shared = moe.intermediate_size, moe.shared_experts_size
    shapes = {"router": (moe.num_experts, hidden)}
    names = [f"expert.{number}.{part}" for number in range(moe.num_experts) for part in ("gate", "up", "down")]
    shapes |= {name: (hidden, inner) if name.endswith("down") else (inner, hidden) for name in names}
    if shared:
        shapes |= {"shared.gate": (shared, hidden), "shared.up": (shared, hidden), "shared.down": (hidden, shared)}
    if moe.shared_gate:
        shapes["shared_gate"] = (1, hidden)
    biased = (("router",) if moe.router_bias else ()) + (tuple(names) if moe.expert_bias else ())
    parts = _linears(shapes, biased)
    if moe.correction_bias:
        parts["router_correction"] = (moe.num_experts,)
    return parts


def placed(names: Names, parts: dict[str, Shape], *, stored_prefix: str = "", prefix: str = "") -> dict[str, Stored]:
    """Return the stored tensors that hold the given parts, by name; every part must have a place.

    stored_prefix: before each stored name. prefix: before each part's name in Stored.holds.
    """
    result: dict[str, Stored] = {}
    missing = set(parts)
    for stem, held in names.items():
        for suffix in (".weight", ".bias", ""):
            full = [part + suffix for part in held]
            if not missing.issuperset(full):
                continue
            missing.difference_update(full)
            shapes = [parts[part] for part in full]
            shape = (sum(part[0] for part in shapes), *shapes[0][1:])
            holds = tuple((prefix + part, size[0]) for part, size in zip(full, shapes, strict=True))
            result[f"{stored_prefix}{stem}{suffix}"] = Stored(shape, holds)
    assert not missing, f"the family says nothing of {', '.join(sorted(missing))}"
    return result
