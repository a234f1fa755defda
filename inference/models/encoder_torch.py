"""The forward pass of any encoder in plain torch, on unpadded texts: the slow twin of the compiled step.

Every family is the same blocks in another order: a norm before or after each block, one MLP matrix or two, positions
from a table, from rotation or from a bias on the scores, all tokens in sight or a window.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from inference.encoders.spec import Activation, EncoderSpec
from inference.encoders.weights import EncoderWeights, LayerWeights, Linear, Norm
from inference.models.encoder_batch import Float32, TextBatch

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu, "silu": F.silu,
    "tanh": torch.tanh,
}  # fmt: skip
RELATIVE_MAX_DISTANCE = 128


class TorchEncoder:
    """An encoder whose weights are torch tensors on one device. weights: as read, kept by reference on the CPU."""

    def __init__(self, spec: EncoderSpec, weights: EncoderWeights, *, device: str = "cpu",
                 dtype: torch.dtype = torch.float32) -> None:
        self.hidden_size, self.max_tokens, self.vocab_size = spec.hidden_size, spec.max_position, spec.vocab_size
        self.weights_bytes = 0
        self._spec = spec
        self._device, self._dtype = torch.device(device), dtype
        self._word = self._tensor(weights.word)
        self._position = None if weights.position is None else self._tensor(weights.position)
        self._token_type = None if weights.token_type is None else self._tensor(weights.token_type)
        self._relative_bias = None if weights.relative_bias is None else self._tensor(weights.relative_bias)
        self._embedding_norm = self._norm(weights.embedding_norm)
        self._final_norm = None if weights.final_norm is None else self._norm(weights.final_norm)
        self._layers = [self._layer(layer) for layer in weights.layers]

    @torch.inference_mode()
    def encode(self, batch: TextBatch) -> Float32:
        """Return the last hidden state of every token, [tokens, hidden] in float32."""
        positions = torch.from_numpy(batch.positions.astype(np.int64)).to(self._device)
        x = self._embed(batch, positions)
        view = _View(self._spec, batch, positions, self._relative_bias, self._dtype)
        for index, layer in enumerate(self._layers):
            x = layer(x, view, index)
        if self._final_norm is not None:
            x = self._final_norm(x)
        hidden: Float32 = x.float().cpu().numpy()
        return hidden

    def _embed(self, batch: TextBatch, positions: Tensor) -> Tensor:
        x = self._word[torch.from_numpy(batch.token_ids.astype(np.int64)).to(self._device)]
        if self._token_type is not None:
            x = x + self._token_type[torch.from_numpy(batch.token_types.astype(np.int64)).to(self._device)]
        if self._position is not None:
            x = x + self._position[positions + self._spec.position_offset]
        return self._embedding_norm(x)

    def _tensor(self, values: Float32) -> Tensor:
        # A read-only view of the file is only read; torch would warn of writing to it.
        tensor = torch.from_numpy(np.array(values, np.float32)).to(self._device, self._dtype)
        self.weights_bytes += tensor.nbytes
        return tensor

    def _norm(self, norm: Norm) -> "_Norm":
        bias = None if norm.bias is None else self._tensor(norm.bias)
        return _Norm(self._tensor(norm.weight), bias, self._spec.norm_eps)

    def _linear(self, linear: Linear) -> "_Linear":
        return _Linear(self._tensor(linear.weight), None if linear.bias is None else self._tensor(linear.bias))

    def _layer(self, layer: LayerWeights) -> "_Layer":
        return _Layer(
            self._spec, qkv=self._linear(layer.qkv), output=self._linear(layer.output),
            attention_norm=None if layer.attention_norm is None else self._norm(layer.attention_norm),
            gate=None if layer.gate is None else self._linear(layer.gate), up=self._linear(layer.up),
            down=self._linear(layer.down), mlp_norm=self._norm(layer.mlp_norm),
        )


class _Linear:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


class _Norm:
    def __init__(self, weight: Tensor, bias: Tensor | None, epsilon: float) -> None:
        self._weight, self._bias, self._epsilon = weight, bias, epsilon

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias, self._epsilon)


class _Layer:
    """One block: attention and MLP, each added to the stream, with norms before or after."""

    def __init__(self, spec: EncoderSpec, *, qkv: _Linear, output: _Linear, attention_norm: _Norm | None,
                 gate: _Linear | None, up: _Linear, down: _Linear, mlp_norm: _Norm) -> None:
        self._spec, self._activation = spec, ACTIVATIONS[spec.activation]
        self._qkv, self._output, self._attention_norm = qkv, output, attention_norm
        self._gate, self._up, self._down, self._mlp_norm = gate, up, down, mlp_norm

    def __call__(self, x: Tensor, view: "_View", index: int) -> Tensor:
        if self._spec.pre_norm:
            normed = x if self._attention_norm is None else self._attention_norm(x)
            x = x + self._output(view.attend(self._qkv(normed), index))
            return x + self._mlp(self._mlp_norm(x))
        assert self._attention_norm is not None
        x = self._attention_norm(x + self._output(view.attend(self._qkv(x), index)))
        return self._mlp_norm(x + self._mlp(x))

    def _mlp(self, x: Tensor) -> Tensor:
        if self._gate is None:
            return self._down(self._activation(self._up(x)))
        return self._down(self._activation(self._gate(x)) * self._up(x))


class _View:
    """What each token of a batch sees: its own text, rotated, biased and windowed as the spec says."""

    def __init__(self, spec: EncoderSpec, batch: TextBatch, positions: Tensor, relative_bias: Tensor | None,
                 dtype: torch.dtype) -> None:
        self._spec = spec
        self._starts = batch.starts.tolist()
        longest = int(batch.lengths.max(initial=0))
        distance = torch.arange(longest, device=positions.device)
        distance = distance[None, :] - distance[:, None]  # [query, key], key - query
        self._bias = None
        if relative_bias is not None:
            self._bias = relative_bias[relative_buckets(distance, spec.relative_buckets)].permute(2, 0, 1).to(dtype)
        self._window = distance.abs() <= spec.local_window if spec.global_every else None
        self._rotary = {theta: _rotary(positions, theta, spec.head_dim)
                        for theta in (spec.rope_theta, spec.local_rope_theta) if theta is not None}

    def attend(self, qkv: Tensor, layer: int) -> Tensor:
        """Attention of every token to its own text. qkv: [tokens, 3 * hidden]; returns [tokens, hidden]."""
        spec, local = self._spec, self._spec.is_local(layer)
        query, key, value = qkv.view(len(qkv), 3, spec.num_heads, spec.head_dim).unbind(1)
        theta = spec.local_rope_theta if local else spec.rope_theta
        if theta is not None:
            query, key = (_rotate(part, *self._rotary[theta]) for part in (query, key))
        out = torch.empty_like(query)
        for first, last in zip(self._starts, self._starts[1:], strict=False):
            count = last - first
            mask = self._window[:count, :count] if local and self._window is not None else None
            if self._bias is not None:
                mask = self._bias[:, :count, :count]
            q, k, v = (part[first:last].transpose(0, 1)[None] for part in (query, key, value))
            out[first:last] = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0].transpose(0, 1)
        return out.view(len(qkv), spec.hidden_size)


def relative_buckets(distance: Tensor, buckets: int) -> Tensor:
    """Return the bucket of each key's distance from its query. Source: T5, as in transformers' MPNetEncoder."""
    half = buckets // 2
    size = distance.abs()
    exact = half // 2
    far = exact + (torch.log(size.float().clamp(min=1) / exact) / math.log(RELATIVE_MAX_DISTANCE / exact)
                   * (half - exact)).long()
    return (distance > 0) * half + torch.where(size < exact, size, far.clamp(max=half - 1))


def _rotary(positions: Tensor, theta: float, dim: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every token's angles, [tokens, 1, dim / 2]."""
    steps = torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device)
    angles = positions.float()[:, None] * (1.0 / theta ** (steps / dim))[None, :]
    return angles.cos()[:, None], angles.sin()[:, None]


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate pairs (i, i + dim / 2) of x [tokens, heads, dim]."""
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1).to(x.dtype)
