"""Shapes of encoders: they keep nothing per token between requests, so only weights and activations count."""

from dataclasses import dataclass

from inference.planner.config_values import MOST_LAYERS, ConfigValues
from inference.planner.decoders import precision, quantisation
from inference.planner.mixtures import mlp_parameters
from inference.planner.shape import Layer, Mixer, Mlp, ModelShape


@dataclass(frozen=True, kw_only=True)
class EncoderTraits:
    """What a family has beside BERT's layers: token types, learned positions, a pooler, relative position buckets."""

    types: bool = True
    positions: bool = True
    pooler: bool = True
    relative: bool = False


FAMILIES: dict[str, EncoderTraits] = {
    "bert": EncoderTraits(), "roberta": EncoderTraits(), "xlm-roberta": EncoderTraits(), "camembert": EncoderTraits(),
    "distilbert": EncoderTraits(types=False, pooler=False), "mpnet": EncoderTraits(types=False, relative=True),
    "electra": EncoderTraits(pooler=False), "modernbert": EncoderTraits(types=False, positions=False, pooler=False),
}


def encoder_shape(values: ConfigValues, family: str) -> ModelShape:
    """Return the shape of an encoder with its pooler, without a task's head. Raises SpecError."""
    traits = FAMILIES[family]
    hidden, vocabulary = values.whole("hidden_size", "dim"), values.whole("vocab_size")
    heads = values.whole("num_attention_heads", "n_heads")
    count = values.whole("num_hidden_layers", "n_layers", most=MOST_LAYERS)
    layer = _modern_layer(values, hidden, heads) if family == "modernbert" else _layer(values, hidden, heads)
    positions = values.whole("max_position_embeddings", default=512)
    types = values.whole("type_vocab_size", default=2, least=0) if traits.types else 0
    width = values.whole("embedding_size", default=hidden) if family == "electra" else hidden
    norms = 2 * hidden if family == "modernbert" else 2 * width
    other = norms
    if traits.relative:
        other += values.whole("relative_attention_num_buckets", default=32) * heads
    if width != hidden:
        other += width * hidden + hidden
    layers = (layer,) * count
    if family == "modernbert":  # no biases, and the first layer has no norm before attention
        other = 2 * hidden
        layers = (Layer(mixers=layer.mixers, mlp=layer.mlp, norms=hidden), *layers[1:])
    return ModelShape(
        family=family, kind="encoder", vocabulary=vocabulary, hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=max(1, hidden // heads), layers=layers, embedding=vocabulary * width, head=0, tied=True,
        positions=(positions if traits.positions else 0) * width + types * width, other=other, context=positions,
        pooler=hidden * (hidden + 1) if traits.pooler else 0,
        precision=precision(values) if values.get("dtype", "torch_dtype") else "float32",
        quantisation=quantisation(values),
    )


def _layer(values: ConfigValues, hidden: int, heads: int) -> Layer:
    inner = values.whole("intermediate_size", "hidden_dim", default=4 * hidden)
    mixer = Mixer(kind="attention", parameters=2 * hidden * (hidden + 1), kv_parameters=2 * hidden * (hidden + 1),
                  kv_heads=heads, score_elements=2 * hidden, ports=8 * hidden)
    return Layer(mixers=(mixer,), mlp=Mlp(dense=mlp_parameters(hidden, inner, gated=False, bias=True), inner=inner),
                 norms=4 * hidden)


def _modern_layer(values: ConfigValues, hidden: int, heads: int) -> Layer:
    inner = values.whole("intermediate_size")
    mixer = Mixer(kind="attention", parameters=2 * hidden * hidden, kv_parameters=2 * hidden * hidden, kv_heads=heads,
                  score_elements=2 * hidden, ports=8 * hidden)
    return Layer(mixers=(mixer,), mlp=Mlp(dense=mlp_parameters(hidden, inner), inner=2 * inner), norms=2 * hidden)
