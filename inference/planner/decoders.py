"""Shapes of decoders with attention in every layer: what all have in common, and a row for each family.

Sources: the modeling files of transformers, with whose parameter counts the tests compare every family named here.
"""

from dataclasses import dataclass, replace
from typing import Literal

from inference.planner.config_values import MOST_LAYERS, ConfigValues
from inference.planner.mixtures import mlp_of_layer
from inference.planner.shape import Layer, Mixer, ModelShape
from inference.spec import SpecError


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a family adds to or leaves out of Llama's layer.

    biases are True, False or the config's key that says. norms: how many a layer has; norm_rows: vectors in each (1: a
    weight, 2: weight and bias, 0: none). qk_norm: a norm of queries and keys over each head ("head"), over all of them
    ("whole"). positions: learned ones. sinks: a number a head that takes attention away.
    """

    qkv_bias: bool | str = "attention_bias"
    out_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = "mlp_bias"
    head_bias: bool = False
    gated: bool = True
    norms: int = 2
    norm_rows: int = 1
    qk_norm: Literal["none", "head", "whole"] = "none"
    tied: bool = False
    positions: bool = False
    sinks: bool = False
    gated_attention: bool = False


_BIASED = Traits(qkv_bias=True, out_bias=True, mlp_bias=True, norm_rows=2, gated=False)
_PLAIN = Traits(qkv_bias=False, out_bias=False, mlp_bias=False)

FAMILIES: dict[str, Traits] = {
    "llama": Traits(), "mistral": _PLAIN, "ministral": _PLAIN, "smollm3": Traits(tied=True),
    "seed_oss": Traits(out_bias="attention_out_bias"),
    "qwen2": replace(_PLAIN, qkv_bias=True), "qwen2_moe": replace(_PLAIN, qkv_bias=True),
    "qwen3": replace(Traits(qk_norm="head"), mlp_bias=False),
    "qwen3_moe": replace(Traits(qk_norm="head"), mlp_bias=False),
    "mixtral": _PLAIN, "olmoe": Traits(qk_norm="whole", mlp_bias=False), "phi3": _PLAIN,
    "gpt_oss": Traits(mlp_bias=False, sinks=True, qkv_bias=True, out_bias=True),
    "phimoe": replace(_PLAIN, norm_rows=2, qkv_bias="attention_bias", out_bias="attention_bias"),
    "gemma": Traits(tied=True, mlp_bias=False), "gemma2": Traits(tied=True, norms=4, mlp_bias=False),
    "gemma3_text": Traits(tied=True, norms=4, mlp_bias=False, qk_norm="head"),
    "olmo": replace(_PLAIN, norm_rows=0, qkv_bias="attention_bias", out_bias="attention_bias"),
    "olmo2": Traits(qk_norm="whole", mlp_bias=False), "olmo3": Traits(qk_norm="whole", mlp_bias=False),
    "glm": replace(_PLAIN, qkv_bias="attention_bias"), "glm4": replace(_PLAIN, qkv_bias="attention_bias", norms=4),
    "glm4_moe": replace(_PLAIN, qkv_bias="attention_bias"),
    "granite": Traits(), "granitemoe": Traits(mlp_bias=False),
    "cohere": Traits(norms=1, tied=True, mlp_bias=False), "cohere2": Traits(norms=1, tied=True, mlp_bias=False),
    "starcoder2": replace(_BIASED, qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", tied=True),
    "stablelm": replace(_PLAIN, qkv_bias="use_qkv_bias", norm_rows=2), "phi": replace(_BIASED, norms=1, head_bias=True),
    "gpt2": replace(_BIASED, tied=True, positions=True), "gpt_neox": _BIASED,
    "ernie4_5": Traits(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", tied=True),
    "hunyuan_v1_dense": Traits(qk_norm="head", mlp_bias=False), "exaone4": replace(_PLAIN, qk_norm="head"),
    "deepseek_v2": Traits(mlp_bias=False), "deepseek_v3": Traits(mlp_bias=False), "kimi_k2": Traits(mlp_bias=False),
    "minicpm3": Traits(mlp_bias=False),
}


# Families whose heads have a size that doesn't follow from the hidden size.
HEAD_DIM = {"gemma": 256, "gemma2": 256, "gemma3_text": 256, "qwen3": 128, "qwen3_next": 256, "gpt_oss": 64,
            "glm": 128, "glm4": 128, "seed_oss": 128, "qwen3_moe": 128}


def decoder_shape(values: ConfigValues, family: str) -> ModelShape:
    """Return the shape of a decoder; a family that isn't known is counted as Llama's. Raises SpecError."""
    traits = FAMILIES.get(family, Traits())
    hidden, vocabulary = values.whole("hidden_size", "n_embd", "d_model"), values.whole("vocab_size")
    heads, kv_heads, head_dim = head_counts(values, family, hidden)
    count = values.whole("num_hidden_layers", "n_layer", "num_layers", most=MOST_LAYERS)
    windows = layer_windows(values, family, count)
    layers = tuple(
        Layer(
            mixers=(attention(values, traits, hidden, heads, kv_heads, head_dim, windows[index]),),
            mlp=mlp_of_layer(values, family, index, hidden, gated=traits.gated, bias=flag(values, traits.mlp_bias)),
            norms=traits.norms * traits.norm_rows * hidden,
        )
        for index in range(count)
    )
    tied, embedding = values.flag("tie_word_embeddings", default=traits.tied), vocabulary * hidden
    context = values.whole("max_position_embeddings", "n_positions", "n_ctx", default=0, least=0)
    return ModelShape(
        family=family, kind="decoder", vocabulary=vocabulary, hidden=hidden, heads=heads, kv_heads=kv_heads,
        head_dim=head_dim, layers=layers, embedding=embedding, tied=tied, context=context,
        head=(0 if tied else embedding) + (vocabulary if traits.head_bias else 0),
        precision=precision(values), quantisation=quantisation(values), rope=rope_kind(values),
        positions=context * hidden if traits.positions else 0, other=traits.norm_rows * hidden,
        notes=() if family in FAMILIES else (f"The architecture {family!r} is not known here: it is counted as a "
                                             "decoder of Llama's shape.",),
    )


def head_counts(values: ConfigValues, family: str, hidden: int) -> tuple[int, int, int]:
    """Return query heads, KV heads and elements of a head."""
    heads = values.whole("num_attention_heads", "n_head")
    kv_heads = values.whole("num_key_value_heads", default=heads)
    head_dim = values.whole("head_dim", default=HEAD_DIM.get(family, max(1, hidden // heads)))
    if heads % kv_heads:
        raise SpecError("num_attention_heads", f"{heads} is not a multiple of num_key_value_heads, {kv_heads}")
    return heads, kv_heads, head_dim


def attention(values: ConfigValues, traits: Traits, hidden: int, heads: int, kv_heads: int, head_dim: int,
              window: int | None) -> Mixer:
    """Return one layer's attention, latent where the config has a kv_lora_rank."""
    if values.get("kv_lora_rank") is not None:
        return _latent_attention(values, hidden, heads)
    queries, keys = heads * head_dim, kv_heads * head_dim
    q_rows = queries * (2 if traits.gated_attention else 1)
    qkv_bias, out_bias = flag(values, traits.qkv_bias), flag(values, traits.out_bias)
    norm = {"none": 0, "head": 2 * head_dim, "whole": queries + keys}[_qk_norm(values, traits)]
    return Mixer(
        kind="attention",
        parameters=q_rows * (hidden + qkv_bias) + queries * hidden,
        kv_parameters=2 * keys * (hidden + qkv_bias),
        replicated=norm + (hidden if out_bias else 0) + (heads if traits.sinks else 0),
        kv_heads=kv_heads, kv_elements=2 * head_dim, window=window, score_elements=2 * queries,
        ports=4 * hidden + q_rows + queries + 2 * keys,
    )


def _qk_norm(values: ConfigValues, traits: Traits) -> Literal["none", "head", "whole"]:
    switch = values.get("use_qk_norm")
    if switch is None:
        return traits.qk_norm
    return "head" if switch is True else "none"


def _latent_attention(values: ConfigValues, hidden: int, heads: int) -> Mixer:
    """Multi-head latent attention: one latent and one rotated key are kept for all heads (DeepSeek-V2, section 2.1)."""
    latent, rope = values.whole("kv_lora_rank"), values.whole("qk_rope_head_dim")
    nope, value = values.whole("qk_nope_head_dim"), values.whole("v_head_dim")
    rank = values.whole("q_lora_rank", default=0)
    bias = flag(values, "attention_bias")
    queries = heads * (nope + rope)
    down = hidden * rank + rank + (rank if bias else 0) if rank else 0
    return Mixer(
        kind="latent",
        parameters=(rank or hidden) * queries + latent * heads * (nope + value) + heads * value * hidden,
        replicated=down + (hidden + bias) * (latent + rope) + latent + (hidden if bias else 0),
        kv_heads=1, kv_elements=latent + rope, score_elements=queries + heads * value,
        ports=(rank or hidden) + queries + (hidden + rank if rank else 0) + hidden + 2 * latent + rope
        + heads * (nope + 2 * value) + hidden,
    )


def layer_windows(values: ConfigValues, family: str, count: int) -> list[int | None]:
    """Return for each layer how many tokens its attention sees at most, or None for all."""
    window = values.whole("sliding_window", default=0, least=0) or None
    if kinds := values.texts("layer_types", length=count):
        chunk = values.whole("attention_chunk_size", default=0, least=0) or None
        by_kind = {"sliding_attention": window, "chunked_attention": chunk}
        return [by_kind.get(kind) for kind in kinds]
    if family.startswith("qwen") and not values.flag("use_sliding_window"):
        return [None] * count
    if family.startswith("qwen"):
        first = values.whole("max_window_layers", default=0, least=0)
        return [window if index >= first else None for index in range(count)]
    pattern = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4, "olmo3": 4}.get(family)
    if pattern:
        pattern = values.whole("sliding_window_pattern", default=pattern)
        return [None if (index + 1) % pattern == 0 else window for index in range(count)]
    return [window] * count


def flag(values: ConfigValues, said: bool | str) -> bool:
    """Return a trait that is fixed, or that the configuration decides."""
    return values.flag(said) if isinstance(said, str) else said


def rope_kind(values: ConfigValues) -> str:
    """Return the kind of rotary embedding; "partial" where only a part of each head is rotated."""
    section = values.section("rope_parameters") or values.section("rope_scaling")
    if section.get("partial_rotary_factor", 1) != 1 or values.get("partial_rotary_factor") not in (None, 1, 1.0):
        return "partial"
    return str(section.get("rope_type") or section.get("type") or "default")


def precision(values: ConfigValues) -> str:
    """Return the type that the checkpoint names: torch_dtype before transformers 4.56, dtype since."""
    return values.text("dtype", "torch_dtype", default="bfloat16").removeprefix("torch.")


def quantisation(values: ConfigValues) -> str | None:
    """Return the planner's name for the checkpoint's quantisation, or None."""
    section = values.section("quantization_config")
    if not section:
        return None
    method = str(section.get("quant_method", "")).lower()
    bits = section.get("bits", section.get("w_bit"))
    if method in ("awq", "gptq", "compressed-tensors", "auto-round"):
        return {4: "int4", 8: "int8"}.get(bits if isinstance(bits, int) else _group_bits(section), "int4")
    if method == "bitsandbytes":
        return "int4" if section.get("load_in_4bit") or section.get("_load_in_4bit") else "int8"
    return {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}.get(method, method or None)


def _group_bits(section: "object") -> int:
    """Return the bits of the first weight group of a compressed-tensors section, 4 when it doesn't say."""
    groups = section.get("config_groups") if isinstance(section, dict) else None
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and isinstance(weights.get("num_bits"), int):
            return int(weights["num_bits"])
    return 4
