"""Where a checkpoint of the Llama family (Llama, SmolLM, Mistral without windows) keeps each part of the decoder."""

from dataclasses import dataclass

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head"


@dataclass(frozen=True)
class LayerNames:
    """Tensor names of one layer; projections are without `.weight` and `.bias`."""

    attention_norm: str
    query: str
    key: str
    value: str
    output: str
    mlp_norm: str
    gate: str
    up: str
    down: str


def layer_names(layer: int) -> LayerNames:
    """Return the names of a layer, counted from 0."""
    start = f"model.layers.{layer}"
    return LayerNames(
        attention_norm=f"{start}.input_layernorm.weight",
        query=f"{start}.self_attn.q_proj",
        key=f"{start}.self_attn.k_proj",
        value=f"{start}.self_attn.v_proj",
        output=f"{start}.self_attn.o_proj",
        mlp_norm=f"{start}.post_attention_layernorm.weight",
        gate=f"{start}.mlp.gate_proj",
        up=f"{start}.mlp.up_proj",
        down=f"{start}.mlp.down_proj",
    )
