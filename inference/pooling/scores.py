"""Makes scores of hidden states: by a classifier, or by how likely a causal model is to answer yes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.encoders.spec import EncoderSpec
from inference.encoders.weights import HeadWeights, Norm
from inference.pooling.activations import activate
from inference.pooling.vectors import apply_linear, pool

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ClassifierHead:
    """A cross-encoder's layers behind the encoder. activation: of the score, unless the raw one is wanted."""

    spec: EncoderSpec
    weights: HeadWeights
    activation: str

    def __call__(self, hidden: Float32, *, raw: bool) -> float:
        """Return the score of one sequence from its hidden states [tokens, hidden]."""
        pooled = pool(hidden, "mean" if self.spec.head_pooling == "mean" else "cls")[None]
        inner = activate(apply_linear(pooled, self.weights.dense), self.spec.head_activation)
        if self.weights.norm is not None:
            inner = layer_norm(inner, self.weights.norm, self.spec.norm_eps)
        logit = apply_linear(inner, self.weights.classifier)[0]
        return float((logit if raw else activate(logit, self.activation))[0])


@dataclass(frozen=True)
class YesNoHead:
    """A causal reranker's answer: softmax over the logits of no and yes. rows: [2, hidden] of the head, no first."""

    rows: Float32

    def __call__(self, hidden: Float32, *, raw: bool) -> float:
        """Return the probability of yes after the last token; raw: its log-odds, logit(yes) - logit(no)."""
        no, yes = self.rows.astype(np.float64) @ hidden[-1].astype(np.float64)
        return float(yes - no) if raw else float(activate(np.array([yes - no], np.float32), "sigmoid")[0])


def layer_norm(x: Float32, norm: Norm, epsilon: float) -> Float32:
    """Return each row of x less its mean, over its deviation, times weight and plus bias."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon) * norm.weight
    out: Float32 = (scaled if norm.bias is None else scaled + norm.bias).astype(np.float32)
    return out
