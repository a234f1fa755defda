"""What a family is: how its configuration reads, and which tensors its checkpoints hold the decoder's parts in."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.experts import ExpertLayout
from inference.artifacts.parts import Names, Stored, layer_parts, placed, top_parts
from inference.artifacts.rope_config import read_rope
from inference.decoder_spec import Activation, DecoderSpec, LayerSpec, MoeSpec

MAX_LAYERS = 10_000
ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
WINDOWED, FULL = "sliding_attention", "full_attention"

TOP_NAMES: Names = {"model.embed_tokens": ("embedding",), "model.norm": ("final_norm",), "lm_head": ("head",)}
ATTENTION_NAMES: Names = {
    "self_attn.q_proj": ("q",), "self_attn.k_proj": ("k",), "self_attn.v_proj": ("v",), "self_attn.o_proj": ("o",),
    "self_attn.q_norm": ("q_norm",), "self_attn.k_norm": ("k_norm",),
}  # fmt: skip
MLP_NAMES: Names = {"mlp.gate_proj": ("gate",), "mlp.up_proj": ("up",), "mlp.down_proj": ("down",)}
NORM_NAMES: Names = {"input_layernorm": ("attention_norm",), "post_attention_layernorm": ("mlp_norm",)}
LAYER_NAMES: Names = {**NORM_NAMES, **ATTENTION_NAMES, **MLP_NAMES}
"""Llama's names, which most families share in large part."""

ReadSpec = Callable[[ConfigReader], DecoderSpec]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model_type. read: its configuration → DecoderSpec, raising ArtifactError or SpecError.

    layer_names, top_names: stems of stored names → the decoder's parts (see inference.artifacts.parts); names of parts
    that a spec lacks are left out. layer_prefix: before a layer's names, with its number. expert_layouts: the ways in
    which checkpoints keep experts, the usual one first. is_unused: whether a stored tensor beside the parts may be left
    unread.
    """

    name: str
    read: ReadSpec
    layer_names: Names = field(default_factory=lambda: LAYER_NAMES)
    top_names: Names = field(default_factory=lambda: TOP_NAMES)
    layer_prefix: str = "model.layers.{}."
    expert_layouts: tuple[ExpertLayout, ...] = ()
    is_unused: Callable[[DecoderSpec, str], bool] = lambda spec, name: False

    def tensors(self, spec: DecoderSpec, present: Collection[str] = ()) -> dict[str, Stored]:
        """Return every tensor that a checkpoint of this spec holds, by its stored name.

        present: the names that there are, by which one of several layouts of experts is told.
        """
        result = placed(self.top_names, top_parts(spec))
        for index in range(spec.num_layers):
            parts, stored, part = layer_parts(spec, index), self.layer_prefix.format(index), f"layers.{index}."
            if spec.moe is not None and spec.layer(index).moe:
                experts = self._experts(spec, spec.moe, stored, present)
                result |= {stored + name: tensor.renamed(part) for name, tensor in experts.items()}
                held = {name for tensor in experts.values() for name, _ in tensor.holds}
                parts = {name: shape for name, shape in parts.items() if name not in held}
            result |= placed(self.layer_names, parts, stored_prefix=stored, prefix=part)
        return result

    def _experts(self, spec: DecoderSpec, moe: MoeSpec, prefix: str, present: Collection[str]) -> dict[str, Stored]:
        layouts = [layout(moe, spec.hidden_size) for layout in self.expert_layouts]
        return max(layouts, key=lambda names: sum(prefix + name in present for name in names))


def read_decoder(reader: ConfigReader, *, family: str, **changes: Any) -> DecoderSpec:
    """Return a DecoderSpec of what nearly every configuration has, with llama's defaults; changes win.

    Raises ArtifactError or SpecError.
    """
    hidden, heads = reader.whole("hidden_size"), reader.whole("num_attention_heads")
    head_dim = changes.get("head_dim") or reader.whole("head_dim", hidden // heads)
    vocab = reader.whole("vocab_size")
    if "rope" not in changes:
        changes["rope"] = read_rope(reader, head_dim=head_dim)
    if "activation" not in changes:
        changes["activation"] = reader.choice("hidden_act", ACTIVATIONS, "silu")
    if changes["rope"].rotated(head_dim) % 2:
        reader.refuse(f"head_dim is {head_dim}; rotary embeddings need an even number")
    values: dict[str, Any] = {
        "vocab_size": vocab, "hidden_size": hidden, "num_heads": heads, "head_dim": head_dim,
        "intermediate_size": changes.pop("intermediate_size", None) or reader.whole("intermediate_size"),
        "num_layers": num_layers(reader),
        "num_kv_heads": reader.whole("num_key_value_heads", heads),
        "max_position": reader.whole("max_position_embeddings", 2048),
        "rms_norm_eps": reader.positive("rms_norm_eps", 1e-6),
        "tie_word_embeddings": reader.flag("tie_word_embeddings"),
        "bos_token_id": next(iter(reader.token_ids("bos_token_id", vocab)), None),
        "eos_token_ids": reader.token_ids("eos_token_id", vocab),
    }
    return DecoderSpec(family=family, **(values | changes))


def num_layers(reader: ConfigReader) -> int:
    return reader.whole("num_hidden_layers", limit=MAX_LAYERS)


def windowed_layers(
    reader: ConfigReader, *, window: int | None, default: Callable[[int], bool], local_rope: int = 0
) -> tuple[LayerSpec, ...]:
    """Return the layers of a model in which some see only a window, as layer_types says or else default(index).

    local_rope: which rope the windowed layers rotate by. Empty when there is no window.
    """
    if window is None:
        return ()
    count = num_layers(reader)
    kinds = reader.words("layer_types", count, (WINDOWED, FULL))
    windowed = [default(index) for index in range(count)] if kinds is None else [kind == WINDOWED for kind in kinds]
    return tuple(LayerSpec(window=window, rope=local_rope) if local else LayerSpec() for local in windowed)
