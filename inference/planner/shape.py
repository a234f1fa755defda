"""The shape of a model as a planner needs it: its parameters by use, and what each layer keeps of a token."""

from dataclasses import dataclass
from typing import Literal

MixerKind = Literal["attention", "latent", "linear"]


@dataclass(frozen=True, kw_only=True)
class Mixer:
    """What moves information between the tokens of one layer: attention, latent attention or a linear recurrence.

    parameters: weights that tensor-parallel ranks share out; kv_parameters: those of keys and values, which they share
    out by KV head; replicated: those that every rank holds whole. kv_heads × kv_elements numbers are kept for each
    token (for latent attention kv_heads is 1 and every rank keeps all); window: of so many tokens at most.
    state_elements: float32 numbers that a request keeps however long it is; conv_elements: those of the model's type.
    score_elements: multiply-adds for each pair of tokens. ports: inputs and outputs of all matrices, for adapters.
    """

    kind: MixerKind
    parameters: int
    kv_parameters: int = 0
    replicated: int = 0
    kv_heads: int = 0
    kv_elements: int = 0
    window: int | None = None
    state_elements: int = 0
    conv_elements: int = 0
    score_elements: int = 0
    ports: int = 0

    @property
    def total(self) -> int:
        return self.parameters + self.kv_parameters + self.replicated


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """The feed-forward part of one layer, in parameters.

    dense: weights that every token passes (shared experts too); router: what chooses experts. Of `experts` experts
    with `expert` parameters each, a token visits `active`. inner: the widest row between its matrices, in elements.
    ports: inputs and outputs of the matrices that every token passes, for adapters.
    """

    dense: int = 0
    router: int = 0
    experts: int = 0
    active: int = 0
    expert: int = 0
    inner: int = 0
    ports: int = 0

    @property
    def total(self) -> int:
        return self.dense + self.router + self.experts * self.expert

    @property
    def visited(self) -> int:
        return self.dense + self.router + self.active * self.expert


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: its mixers (two where attention and a recurrence run side by side), its MLP, its norms' parameters."""

    mixers: tuple[Mixer, ...]
    mlp: Mlp
    norms: int


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A whole model. Sizes in elements.

    embedding: parameters of the word embedding; head: of the output matrix, 0 when the embedding serves as it (tied).
    positions: learned positions and token types, looked up like words. pooler: a layer behind an encoder that vectors
    don't pass; other: norms and the like. rope: the kind of rotary position embedding.
    context: the model's own limit in tokens, 0 when it doesn't say. precision: the type that its config names.
    quantisation: the method of its quantization_config, such as "fp8", or None.
    """

    family: str
    kind: Literal["decoder", "encoder"]
    vocabulary: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[Layer, ...]
    embedding: int
    head: int
    tied: bool
    context: int
    precision: str
    rope: str = "default"
    positions: int = 0
    pooler: int = 0
    other: int = 0
    quantisation: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All parameters; tied embeddings count once."""
        layers = sum(sum(mixer.total for mixer in layer.mixers) + layer.mlp.total + layer.norms
                     for layer in self.layers)
        return self.embedding + self.head + self.positions + self.pooler + self.other + layers

    @property
    def unvisited(self) -> int:
        """Parameters of the routed experts that a token doesn't visit."""
        return sum(layer.mlp.total - layer.mlp.visited for layer in self.layers)

    @property
    def active(self) -> int:
        """All parameters but those of the routed experts that a token doesn't visit."""
        return self.total - self.unvisited

    @property
    def looked_up(self) -> int:
        """Parameters of tables of which a token reads one row and that no matrix product uses."""
        used_as_head = self.tied and self.kind == "decoder"
        return self.positions + (0 if used_as_head else self.embedding)

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        return tuple(mixer for layer in self.layers for mixer in layer.mixers)

    @property
    def linear_parameters(self) -> int:
        """Parameters of the layers' matrices: what quantisation methods store in fewer bits."""
        return sum(sum(mixer.parameters + mixer.kv_parameters for mixer in layer.mixers)
                   + layer.mlp.total - layer.mlp.router for layer in self.layers)

    @property
    def expert_parameters(self) -> int:
        return sum(layer.mlp.experts * layer.mlp.expert for layer in self.layers)
