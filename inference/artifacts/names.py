"""What GGUF calls a decoder's tensors, family by family, and how it keeps their rows and values."""

import re
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

HEAD = "lm_head.weight"
ROPE_FACTORS = "rope_freqs.weight"  # GGUF only: what llama-3 rope scaling divides each frequency by
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"  # and longrope's
CONFIGURATION_TENSORS = (ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS)  # part of the configuration, not of the weights

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_ATTENTION = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
              "attn_output": "self_attn.o_proj"}  # fmt: skip
_QK_NORM = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_FOUR_NORMS = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
               "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}  # fmt: skip
_LAYER_NAME = re.compile(r"blk\.(\d{1,6})\.([a-z_]+)\.(weight|bias)")
_TOP_NAME = re.compile(r"([a-z_]+)\.(weight|bias)")


@dataclass(frozen=True, kw_only=True)
class GgufArchitecture:
    """How llama.cpp's converter stores one family. model_type: what transformers calls it.

    layer_names: GGUF's stems in a layer → Hugging Face's. interleaved: rows of queries and keys are reordered, see
    half_split_rows. plus_one: norms are stored as 1 + weight. Source: llama.cpp's convert_hf_to_gguf.py.
    """

    model_type: str
    layer_names: dict[str, str]
    interleaved: bool = False
    plus_one: bool = False

    def hf_name(self, gguf_name: str) -> str | None:
        """Return a tensor's Hugging Face name, or None when the family has no such tensor."""
        if match := _LAYER_NAME.fullmatch(gguf_name):
            layer, part, suffix = match.groups()
            known = self.layer_names.get(part)
            return None if known is None else f"model.layers.{int(layer)}.{known}.{suffix}"
        if match := _TOP_NAME.fullmatch(gguf_name):
            part, suffix = match.groups()
            return f"{_TOP[part]}.{suffix}" if part in _TOP else None
        return None


ARCHITECTURES = {
    "llama": GgufArchitecture(model_type="llama", layer_names={**_NORMS, **_ATTENTION, **_MLP}, interleaved=True),
    "qwen2": GgufArchitecture(model_type="qwen2", layer_names={**_NORMS, **_ATTENTION, **_MLP}),
    "qwen3": GgufArchitecture(model_type="qwen3", layer_names={**_NORMS, **_ATTENTION, **_QK_NORM, **_MLP}),
    "gemma2": GgufArchitecture(model_type="gemma2", layer_names={**_FOUR_NORMS, **_ATTENTION, **_MLP}, plus_one=True),
    "gemma3": GgufArchitecture(model_type="gemma3_text", plus_one=True,
                               layer_names={**_FOUR_NORMS, **_ATTENTION, **_QK_NORM, **_MLP}),
    "phi3": GgufArchitecture(model_type="phi3", layer_names={
        **_NORMS, "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", "ffn_up": "mlp.gate_up_proj",
        "ffn_down": "mlp.down_proj",
    }),
}  # fmt: skip


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
