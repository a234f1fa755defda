"""Where each family of encoders keeps its weights: names as data, so that a new family is a new table."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HeadNames:
    """A classifier's layers, outside the base model's prefix unless inside says so. norm: between both, or None."""

    dense: str
    classifier: str
    norm: str | None = None
    dense_inside: bool = False


@dataclass(frozen=True, kw_only=True)
class FamilyNames:
    """Names without `.weight` and `.bias`. Those of a layer are written behind `layer`, with its number filled in.

    prefixes: what a checkpoint may have before all names of the base model, the likeliest first.
    query, key, value or, where one tensor holds all three, qkv. gate and up or, gate first, gate_up.
    ignored: further tensors that checkpoints carry and that nothing here reads, by their beginning or ending.
    """

    prefixes: tuple[str, ...]
    word: str
    embedding_norm: str
    layer: str
    output: str
    attention_norm: str
    up: str
    down: str
    mlp_norm: str
    position: str | None = None
    token_type: str | None = None
    query: str = ""
    key: str = ""
    value: str = ""
    qkv: str | None = None
    gate: str | None = None
    gate_up: str | None = None
    final_norm: str | None = None
    relative_bias: str | None = None
    head: HeadNames | None = None
    ignored: tuple[str, ...] = ()

    def prefix_of(self, tensors: Collection[str]) -> str:
        """Return the prefix that this checkpoint uses."""
        return next((prefix for prefix in self.prefixes if f"{prefix}{self.word}.weight" in tensors), self.prefixes[0])


_BERT_LAYER = {
    "layer": "encoder.layer.{layer}.", "query": "attention.self.query", "key": "attention.self.key",
    "value": "attention.self.value", "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm", "up": "intermediate.dense", "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}  # fmt: skip
_BERT_EMBEDDINGS = {
    "word": "embeddings.word_embeddings", "position": "embeddings.position_embeddings",
    "token_type": "embeddings.token_type_embeddings", "embedding_norm": "embeddings.LayerNorm",
}  # fmt: skip
_UNREAD = ("embeddings.position_ids", "pooler.dense.", "cls.", "lm_head.", "rotary_emb.inv_freq")

FAMILIES: dict[str, FamilyNames] = {
    "bert": FamilyNames(
        **_BERT_EMBEDDINGS, **_BERT_LAYER, prefixes=("", "bert."), ignored=_UNREAD,
        head=HeadNames(dense="pooler.dense", dense_inside=True, classifier="classifier"),
    ),
    "roberta": FamilyNames(
        **_BERT_EMBEDDINGS, **_BERT_LAYER, prefixes=("", "roberta."), ignored=_UNREAD,
        head=HeadNames(dense="classifier.dense", classifier="classifier.out_proj"),
    ),
    "distilbert": FamilyNames(
        prefixes=("", "distilbert."), word="embeddings.word_embeddings", position="embeddings.position_embeddings",
        embedding_norm="embeddings.LayerNorm", layer="transformer.layer.{layer}.", query="attention.q_lin",
        key="attention.k_lin", value="attention.v_lin", output="attention.out_lin", attention_norm="sa_layer_norm",
        up="ffn.lin1", down="ffn.lin2", mlp_norm="output_layer_norm",
        head=HeadNames(dense="pre_classifier", classifier="classifier"),
        ignored=(*_UNREAD, "vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
    ),
    "mpnet": FamilyNames(
        prefixes=("", "mpnet."), word="embeddings.word_embeddings", position="embeddings.position_embeddings",
        embedding_norm="embeddings.LayerNorm", layer="encoder.layer.{layer}.", query="attention.attn.q",
        key="attention.attn.k", value="attention.attn.v", output="attention.attn.o",
        attention_norm="attention.LayerNorm", up="intermediate.dense", down="output.dense",
        mlp_norm="output.LayerNorm", relative_bias="encoder.relative_attention_bias", ignored=_UNREAD,
        head=HeadNames(dense="classifier.dense", classifier="classifier.out_proj"),
    ),
    "nomic_bert": FamilyNames(
        prefixes=("", "bert.", "nomic_bert."), word="embeddings.word_embeddings",
        token_type="embeddings.token_type_embeddings", embedding_norm="emb_ln", layer="encoder.layers.{layer}.",
        qkv="attn.Wqkv", output="attn.out_proj", attention_norm="norm1", gate="mlp.fc12", up="mlp.fc11",
        down="mlp.fc2", mlp_norm="norm2", ignored=_UNREAD,
    ),
    "modernbert": FamilyNames(
        prefixes=("", "model."), word="embeddings.tok_embeddings", embedding_norm="embeddings.norm",
        layer="layers.{layer}.", qkv="attn.Wqkv", output="attn.Wo", attention_norm="attn_norm", gate_up="mlp.Wi",
        up="", down="mlp.Wo", mlp_norm="mlp_norm", final_norm="final_norm",
        head=HeadNames(dense="head.dense", norm="head.norm", classifier="classifier"),
        ignored=(*_UNREAD, "head.", "decoder."),
    ),
}  # fmt: skip

SPARSE_HEAD, VECTOR_HEAD = "sparse_linear", "colbert_linear"
"""BGE-M3's further heads, beside any base model: lexical weights [1, hidden] and multi-vectors [size, hidden]."""

LEGACY_ENDINGS = {".weight": ".gamma", ".bias": ".beta"}
"""What norms called their parameters in checkpoints converted from TensorFlow."""
