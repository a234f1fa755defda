"""One decoder in torch for every family: embedding, layers as the spec says, final norm and head."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from inference.decoder_spec import DecoderSpec
from inference.layers.attention import Attention
from inference.layers.lora import among
from inference.layers.mlp import Mlp
from inference.layers.norm import Norm
from inference.layers.step import AttentionModule, LayerCache, MlpModule, StepTensors
from inference.layers.weights import WeightLoader


def _attention(spec: DecoderSpec, index: int, load: WeightLoader) -> AttentionModule:
    if spec.mla is not None:
        from inference.layers.mla import LatentAttention

        return LatentAttention(spec, index, load)
    return Attention(spec, index, load)


def _mlp(spec: DecoderSpec, index: int, load: WeightLoader) -> MlpModule:
    if spec.moe is not None and spec.layer(index).moe:
        from inference.layers.moe import MoeMlp

        return MoeMlp(spec, index, load)
    return Mlp(spec, index, load)


class Layer:
    """Attention and MLP, each added to the residual stream, with norms where the spec has them."""

    def __init__(self, spec: DecoderSpec, index: int, load: WeightLoader) -> None:
        def norm(name: str) -> Norm | None:
            part = f"layers.{index}.{name}"
            return Norm.load(spec, part, load) if f"{part}.weight" in load else None

        self.attention, self.mlp = _attention(spec, index, load), _mlp(spec, index, load)
        self._attention_norm, self._attention_post_norm = norm("attention_norm"), norm("attention_post_norm")
        self._mlp_norm, self._mlp_post_norm = norm("mlp_norm"), norm("mlp_post_norm")
        self._multiplier = spec.residual_multiplier

    def __call__(self, x: Tensor, step: StepTensors, cache: LayerCache) -> Tensor:
        """Return the stream [tokens, hidden] after this layer."""
        added = self.attention(self._attention_norm(x) if self._attention_norm else x, step, cache)
        x = self._add(x, added, self._attention_post_norm)
        added = self.mlp(self._mlp_norm(x) if self._mlp_norm else x, step)
        return self._add(x, added, self._mlp_post_norm)

    def _add(self, x: Tensor, added: Tensor, norm: Norm | None) -> Tensor:
        if norm:
            added = norm(added)
        return x + (added if self._multiplier == 1 else added * self._multiplier)


class TorchDecoder:
    """A decoder's weights and its forward pass over flat tokens. layers: for what is read or changed from outside."""

    def __init__(self, spec: DecoderSpec, load: WeightLoader) -> None:
        self.spec = spec
        self._embedding = load.embedding("embedding")
        self.layers = [Layer(spec, index, load) for index in range(spec.num_layers)]
        self._final_norm = Norm.load(spec, "final_norm", load)
        self._head = self._embedding.table if spec.tie_word_embeddings else load.linear("head")

    def __call__(self, step: StepTensors, caches: Sequence[LayerCache], logit_rows: Tensor) -> Tensor:
        """Write the step's part of the caches and return logits of its rows logit_rows, [rows, vocabulary], float32."""
        x = self._stream(step, caches)
        if step.adapters:
            step = replace(step, adapters=among(step.adapters, logit_rows))
        logits = self._head(self._final_norm(x[logit_rows]), step).float()
        if self.spec.logit_multiplier != 1:
            logits = logits * self.spec.logit_multiplier
        if self.spec.logit_softcap is not None:
            logits = torch.tanh(logits / self.spec.logit_softcap) * self.spec.logit_softcap
        return logits

    def hidden(self, step: StepTensors, caches: Sequence[LayerCache]) -> Tensor:
        """Write the step's part of the caches and return each token's state behind the final norm, [tokens, hidden]."""
        return self._final_norm(self._stream(step, caches))

    def _stream(self, step: StepTensors, caches: Sequence[LayerCache]) -> Tensor:
        x = self._embedding(step.token_ids)
        if self.spec.embedding_multiplier != 1:
            x = x * torch.tensor(self.spec.embedding_multiplier, dtype=x.dtype)  # rounded as the weights are
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, step, cache)
        return x
