"""What an encoder is made of, as its config.json says: one description for every family, without torch."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from inference.spec import SpecError

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
HeadPooling = Literal["first", "mean"]

MAX_SIZE = 2**31
MAX_LAYERS = 1024


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """The shape of a bidirectional encoder; sizes in elements.

    family: whose names its tensors have (inference.encoders.names). max_position: most tokens of one text.
    position_rows: rows of the learned position table, 0 without one; position_offset: row of a text's first token.
    token_types: rows of the segment table, 0 without one. pre_norm: norms before each block and one at the end, with
    none before the first attention; otherwise a norm after each block. gated: the MLP is down(act(gate) * up).
    rope_theta, local_rope_theta: rotary bases of global and local layers, None without rotary positions.
    local_window: a local layer's tokens see so many to each side; global_every: layers 0, n, 2n … are global, 0: all.
    relative_buckets: buckets of a bias on the scores by distance (T5's scheme, as MPNet has it), 0 without.
    labels: outputs of the classifier, 0 without one; head_pooling: what it reads. Raises SpecError.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_position: int
    norm_eps: float
    activation: Activation = "gelu"
    position_rows: int = 0
    position_offset: int = 0
    token_types: int = 0
    pre_norm: bool = False
    gated: bool = False
    norm_bias: bool = True
    attention_bias: bool = True
    mlp_bias: bool = True
    rope_theta: float | None = None
    local_rope_theta: float | None = None
    local_window: int = 0
    global_every: int = 0
    relative_buckets: int = 0
    labels: int = 0
    head_pooling: HeadPooling = "first"
    head_bias: bool = True
    head_activation: Activation = "tanh"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and not (_whole(value) and 0 <= value < MAX_SIZE):
                raise SpecError(field.name, "must be a whole number that is not negative")
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "max_position"):
            if getattr(self, name) < 1:
                raise SpecError(name, "must be at least 1")
        if self.num_layers > MAX_LAYERS:
            raise SpecError("num_layers", f"must be at most {MAX_LAYERS}")
        if self.hidden_size % self.num_heads:
            raise SpecError("num_heads", f"must divide the hidden size {self.hidden_size}")
        for name in ("norm_eps", "rope_theta", "local_rope_theta"):
            value = getattr(self, name)
            if value is not None and not (_number(value) and value > 0):
                raise SpecError(name, "must be a positive number")
        if self.position_rows and self.position_offset + self.max_position > self.position_rows:
            raise SpecError("max_position", f"{self.max_position} tokens from row {self.position_offset} on "
                                            f"don't fit a table of {self.position_rows} positions")
        if (self.rope_theta is not None or self.local_rope_theta is not None) and self.head_dim % 2:
            raise SpecError("num_heads", "rotary positions need an even size of heads")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees only its window."""
        return self.global_every > 0 and layer % self.global_every != 0

    def parameters(self) -> int:
        """How many weights the encoder has, its classifier apart."""
        hidden, inner = self.hidden_size, self.intermediate_size
        layer = 4 * hidden * hidden + (3 if self.gated else 2) * hidden * inner
        return (self.vocab_size + self.position_rows + self.token_types) * hidden + self.num_layers * layer


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
