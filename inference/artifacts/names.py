"""The names of a llama-shaped decoder's tensors: which there must be, and what GGUF calls them."""

import re
from typing import Any

import numpy.typing as npt

from inference.decoder_spec import DecoderSpec

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
ROPE_FACTORS = "rope_freqs.weight"  # GGUF only: what llama-3 rope scaling divides each frequency by

_GGUF_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_LAYER_NAME = re.compile(r"blk\.(\d{1,6})\.([a-z_]+)\.(weight|bias)")
_GGUF_TOP_NAME = re.compile(r"([a-z_]+)\.(weight|bias)")


def hf_name(gguf_name: str) -> str | None:
    """Return the Hugging Face name of a llama tensor in GGUF, or None when a llama has no such tensor."""
    if match := _GGUF_LAYER_NAME.fullmatch(gguf_name):
        layer, part, suffix = match.groups()
        return f"model.layers.{int(layer)}.{_GGUF_LAYER[part]}.{suffix}" if part in _GGUF_LAYER else None
    if match := _GGUF_TOP_NAME.fullmatch(gguf_name):
        part, suffix = match.groups()
        return f"{_GGUF_TOP[part]}.{suffix}" if part in _GGUF_TOP else None
    return None


def rotary_heads(name: str, *, num_heads: int, num_kv_heads: int) -> int | None:
    """Return how many heads' rows GGUF stores interleaved in this tensor, or None when it keeps the usual order."""
    if ".self_attn.q_proj." in name:
        return num_heads
    if ".self_attn.k_proj." in name:
        return num_kv_heads
    return None


def half_split_rows(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Undo llama.cpp's reordering of query and key rows: pairs (2i, 2i+1) of a head go back to (i, i + head_dim/2).

    rows: [heads * head_dim, ...]. Source: LlamaModel.permute in llama.cpp's convert_hf_to_gguf.py.
    """
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def expected_shapes(spec: DecoderSpec) -> dict[str, tuple[int, ...]]:
    """Return every tensor that a decoder of this spec has, with its shape. [out, in] for projections."""
    hidden, queries, keys = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (spec.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not spec.tie_word_embeddings:
        shapes[HEAD] = (spec.vocab_size, hidden)
    attention = {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden),
                 "o_proj": (hidden, queries)}
    mlp = {"gate_proj": (spec.intermediate_size, hidden), "up_proj": (spec.intermediate_size, hidden),
           "down_proj": (hidden, spec.intermediate_size)}
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}"
        shapes[f"{prefix}.input_layernorm.weight"] = (hidden,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
        for block, parts, bias in (("self_attn", attention, spec.attention_bias), ("mlp", mlp, spec.mlp_bias)):
            for part, shape in parts.items():
                shapes[f"{prefix}.{block}.{part}.weight"] = shape
                if bias:
                    shapes[f"{prefix}.{block}.{part}.bias"] = shape[:1]
    return shapes
