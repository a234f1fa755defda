"""Which linear layers of a decoder layer share an input, and what can be scaled before them without changing the model.

A factor s for each input is free where what produces the input can be divided by s: a norm's weight, the rows of the
values before the output projection, the rows of `up` before `down`. Source: Xiao et al. 2022, "SmoothQuant", and Lin et
al. 2023, "AWQ".
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from inference.artifacts.errors import ArtifactError

PLUS_ONE = ("gemma2", "gemma3_text")  # norms multiply by 1 + weight
SMOOTHED = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", *PLUS_ONE)


@dataclass
class Block:
    """Linear layers that share an input, in the order in which they run. names: inside the decoder layer.

    norm: what the input comes from, when it is a norm. producer: or the linear layer whose outputs it is made of, each
    of them repeated for `repeats` heads in a row of head_dim.
    """

    names: list[str]
    modules: list[nn.Linear]
    norm: nn.Module | None = None
    plus_one: bool = False
    producer: nn.Linear | None = None
    repeats: int = 1
    head_dim: int = 1

    def shared(self, factors: Tensor) -> Tensor:
        """Return factors [inputs] made equal where inputs come from the same output of the producer."""
        if self.repeats == 1:
            return factors
        heads = factors.reshape(-1, self.repeats, self.head_dim).log().mean(1, keepdim=True).exp()
        return heads.expand(-1, self.repeats, -1).reshape(-1)

    def scale(self, factors: Tensor) -> None:
        """Multiply the layers' inputs' weights by factors [inputs] and divide what produces them."""
        for module in self.modules:
            module.weight.mul_(factors)
        if self.norm is not None:
            weight: Any = self.norm.weight
            weight.copy_((weight + 1) / factors - 1 if self.plus_one else weight / factors)
        elif self.producer is not None:
            own = factors.reshape(-1, self.repeats, self.head_dim)[:, 0].reshape(-1)
            self.producer.weight.div_(own[:, None])
            if self.producer.bias is not None:
                self.producer.bias.div_(own)


def blocks_of(layer: nn.Module, config: Any) -> list[Block]:
    """Return the blocks of a decoder layer of a family in SMOOTHED. config: the model's, as transformers has it."""
    parts: dict[str, Any] = dict(layer.named_modules())
    plus_one = config.model_type in PLUS_ONE
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    repeats = config.num_attention_heads // config.num_key_value_heads
    mlp_norm = parts.get("pre_feedforward_layernorm", parts["post_attention_layernorm"])

    def block(*names: str, **how: Any) -> Block:
        return Block(list(names), [parts[name] for name in names], **how)

    attention = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return [
        block(*attention, norm=parts["input_layernorm"], plus_one=plus_one),
        block("self_attn.o_proj", producer=parts["self_attn.v_proj"], repeats=repeats, head_dim=head_dim),
        block("mlp.gate_proj", "mlp.up_proj", norm=mlp_norm, plus_one=plus_one),
        block("mlp.down_proj", producer=parts["mlp.up_proj"]),
    ]


def plain_blocks(layer: nn.Module) -> list[Block]:
    """Return the linear layers of a decoder layer, those together that share an input where the names are llama's."""
    linears = {name: module for name, module in layer.named_modules() if isinstance(module, nn.Linear)}
    if not linears:
        raise ArtifactError("config.json", "the model's layers hold no linear layers that this tool can quantise")
    together = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj"))
    blocks, taken = [], set[str]()
    for name in linears:
        names = next((group for group in together if name in group and set(group) <= set(linears)), (name,))
        if name not in taken:
            taken |= set(names)
            blocks.append(Block(list(names), [linears[part] for part in names]))
    return blocks


def largest(inputs: list[Tensor]) -> Tensor:
    """Return each input's largest absolute value. [in]"""
    return torch.stack([part.abs().amax(0) for part in inputs]).amax(0)


def mean_size(inputs: list[Tensor]) -> Tensor:
    """Return each input's mean absolute value. [in]"""
    return torch.cat(inputs).abs().mean(0)
