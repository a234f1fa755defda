"""Frozen specs of a decoder's shape: what each layer is made of, as a checkpoint's configuration says; no torch.

A family (inference.artifacts.families) turns a configuration into a DecoderSpec. Everything that differs between
families is a field here, so that one decoder runs all of them.
"""

import math
from dataclasses import MISSING, dataclass, fields
from typing import Literal

from inference.spec import SpecError

RopeKind = Literal["default", "linear", "yarn", "llama3", "longrope"]
NormKind = Literal["rms", "rms_plus_one", "layernorm"]
NormPlaces = Literal["before", "after", "both"]
QkNorm = Literal["none", "head", "whole"]
Activation = Literal["silu", "gelu", "gelu_tanh", "swiglu_clamped"]
RouterScore = Literal["softmax", "sigmoid", "softmax_of_chosen"]


MOST_EXPERTS = 1 << 17
"""Of all layers together; each has tensors of its own, which are listed before any of them is read."""


def _require(condition: bool, field: str, message: str) -> None:
    if not condition:
        raise SpecError(field, message)


def _require_sizes(spec: object, *fields: str) -> None:
    for field in fields:
        value = getattr(spec, field)
        _require(isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31, field,
                 "must be a positive whole number")


def _require_positive(spec: object, *fields: str) -> None:
    for field in fields:
        value = getattr(spec, field)
        _require(value is None or (math.isfinite(value) and value > 0), field, "must be positive")


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """Rotary position embedding. Source: transformers' modeling_rope_utils for each kind.

    partial: the share of each head that is rotated, its first elements. interleaved: pairs are (2i, 2i + 1) instead of
    (i, i + half). factor, original_max_position: of every kind but default. low_freq_factor, high_freq_factor: llama3.
    beta_fast, beta_slow, truncate: YaRN. attention_factor: what cosine and sine are multiplied by (YaRN, longrope).
    short_factor, long_factor: longrope's divisors of each frequency, in texts up to original_max_position and past it.
    """

    theta: float = 10_000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192
    partial: float = 1.0
    interleaved: bool = False
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _require_positive(self, "theta", "factor", "low_freq_factor", "high_freq_factor", "partial", "beta_fast",
                          "beta_slow", "attention_factor")
        _require_sizes(self, "original_max_position")
        _require(self.partial <= 1, "partial", "must be at most 1")

    def rotated(self, head_dim: int) -> int:
        """Return how many elements of a head are rotated."""
        return int(head_dim * self.partial)


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """What one layer does in its own way.

    window: the token itself and so many less one before it are seen; None sees all. rope: which of the decoder's ropes
    it rotates by; None leaves positions out (NoPE). moe: its MLP is a mixture of experts.
    """

    window: int | None = None
    rope: int | None = 0
    moe: bool = False


@dataclass(frozen=True, kw_only=True)
class MoeSpec:
    """A mixture of experts in place of an MLP.

    intermediate_size: of one expert. score: what turns router logits into weights: softmax or sigmoid over all experts,
    or softmax over the chosen ones. groups, top_groups: experts lie in groups, of which only the best may be chosen
    from; a group is as good as the sum of its group_score_top best experts. norm_top_k: chosen weights are divided by
    their sum. scaling: then multiplied by this. correction_bias: a bias of the checkpoint is added to the scores for
    choosing only. router_bias, expert_bias: linear layers with bias.
    shared_experts_size: inner size of an MLP that every token passes, 0 for none; shared_gate: behind a sigmoid gate.
    """

    num_experts: int
    top_k: int
    intermediate_size: int
    score: RouterScore = "softmax"
    groups: int = 1
    top_groups: int = 1
    group_score_top: int = 1
    norm_top_k: bool = False
    scaling: float = 1.0
    correction_bias: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_experts_size: int = 0
    shared_gate: bool = False

    def __post_init__(self) -> None:
        _require_sizes(self, "num_experts", "top_k", "intermediate_size", "groups", "top_groups", "group_score_top")
        _require(self.num_experts % self.groups == 0, "groups", "must divide num_experts")
        _require(self.group_score_top <= self.num_experts // self.groups, "group_score_top",
                 "must be at most the experts of a group")
        _require(self.top_groups <= self.groups, "top_groups", "must be at most groups")
        _require(self.top_k <= self.num_experts // self.groups * self.top_groups, "top_k",
                 "must be at most the experts of the chosen groups")


@dataclass(frozen=True, kw_only=True)
class MlaSpec:
    """Multi-head latent attention: keys and values come from one latent vector a token.

    q_lora_rank: size of the queries' latent; None projects queries directly. A head's key has nope_head_dim elements
    from the latent and rope_head_dim rotated ones that all heads share; its value has v_head_dim.
    """

    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None

    def __post_init__(self) -> None:
        _require_sizes(self, "kv_lora_rank", "nope_head_dim", "rope_head_dim", "v_head_dim")
        if self.q_lora_rank is not None:
            _require_sizes(self, "q_lora_rank")


@dataclass(frozen=True, kw_only=True)
class DecoderSpec:
    """The shape of a decoder, as config.json or GGUF metadata give it; sizes in elements, no torch needed to read it.

    family: the name in inference.artifacts.families. eos_token_ids: every id that ends a reply (generation_config
    first, then config). rope, other_ropes: LayerSpec.rope counts through (rope, *other_ropes).
    layers: what each layer does in its own way; empty for full attention, the first rope and a plain MLP everywhere.
    rms_norm_eps: of every norm, whatever its kind. norm: rms, rms with 1 + weight, or layer norm (with a bias if
    norm_bias). norm_places: around attention and MLP, before, after (on what they add) or both.
    qk_norm: queries and keys are normed before rotation, over each head or over all heads together.
    attention_bias: of queries, keys and values; output_bias: of attention's output. sinks: a learned logit for each
    head that takes part in softmax. query_scale: factor of the scores, else head_dim ** -0.5.
    attention_softcap, logit_softcap: cap * tanh(x / cap) of scores or logits. activation: swiglu_clamped is gpt_oss'
    (gate * sigmoid(1.702 gate) * (up + 1), both clamped to activation_limit).
    embedding_multiplier, residual_multiplier, logit_multiplier: of embeddings, of what a block adds, of logits.
    """

    family: str  # "llama"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    rms_norm_eps: float
    rope: RopeSpec
    tie_word_embeddings: bool
    other_ropes: tuple[RopeSpec, ...] = ()
    layers: tuple[LayerSpec, ...] = ()
    norm: NormKind = "rms"
    norm_bias: bool = False
    norm_places: NormPlaces = "before"
    qk_norm: QkNorm = "none"
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    sinks: bool = False
    query_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    activation: Activation = "silu"
    activation_limit: float = 7.0
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logit_multiplier: float = 1.0
    moe: MoeSpec | None = None
    mla: MlaSpec | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _require_sizes(self, "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads",
                       "num_kv_heads", "head_dim", "max_position")
        _require_positive(self, "rms_norm_eps", "query_scale", "attention_softcap", "logit_softcap",
                          "activation_limit", "embedding_multiplier", "residual_multiplier", "logit_multiplier")
        _require(self.num_heads % self.num_kv_heads == 0, "num_heads", "must be a multiple of num_kv_heads")
        _require(len(self.layers) in (0, self.num_layers), "layers", f"must be none or {self.num_layers}")
        for layer in self.layers:
            _require(layer.rope is None or 0 <= layer.rope < len(self.ropes), "layers", "names a rope that isn't there")
            _require(layer.window is None or layer.window >= 1, "layers", "a window must be at least 1")
            _require(not layer.moe or self.moe is not None, "layers", "a layer has experts but moe is missing")
        experts = 0 if self.moe is None else self.moe.num_experts * self.num_layers
        _require(experts <= MOST_EXPERTS, "num_experts", f"more than {MOST_EXPERTS:,} in all layers together")

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        return (self.rope, *self.other_ropes)

    @property
    def score_factor(self) -> float:
        """What query-key products are multiplied by."""
        return self.head_dim**-0.5 if self.query_scale is None else self.query_scale

    @property
    def cache_heads(self) -> int:
        """Heads of a layer's keys and values in the cache; latent attention has one."""
        return 1 if self.mla else self.num_kv_heads

    @property
    def cache_dims(self) -> tuple[int, int]:
        """Elements of a cached key and of a cached value of one head; latent attention has no value beside its key."""
        if self.mla:
            return self.mla.kv_lora_rank + self.mla.rope_head_dim, 0
        return self.head_dim, self.head_dim

    @property
    def is_plain(self) -> bool:
        """Whether this is llama's shape, which the fast path on the CPU is made for; biases are part of it."""
        free = {"layers", "attention_bias", "output_bias", "mlp_bias", "bos_token_id", "eos_token_ids"}
        usual = all(getattr(self, field.name) == field.default for field in fields(self)
                    if field.default is not MISSING and field.name not in free)
        everywhere = all(layer == LayerSpec() for layer in self.layers)
        rotates = self.rope.kind in ("default", "linear", "llama3") and self.rope.partial == 1
        return usual and everywhere and rotates and not self.rope.interleaved

    @property
    def switch_length(self) -> int | None:
        """Texts with more tokens than this have other rotary frequencies from their start on (longrope)."""
        lengths = [rope.original_max_position for rope in self.ropes if rope.kind == "longrope"]
        return min(lengths, default=None)

    def layer(self, index: int) -> LayerSpec:
        """Return what a layer, counted from 0, does in its own way."""
        return self.layers[index] if self.layers else LayerSpec(moe=self.moe is not None)

    def kv_bytes_per_token(self, element_bytes: int = 4) -> int:
        """Bytes that one token holds in the KV cache: keys and values of every layer."""
        return self.num_layers * self.cache_heads * sum(self.cache_dims) * element_bytes
