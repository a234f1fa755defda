"""Tiny encoders of every family with random weights, written by transformers, and a tokenizer that fits them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerFast

WORDS = [
    "the", "a", "cat", "dog", "sat", "on", "mat", "what", "is", "capital", "of", "france", "paris", "berlin", "river",
    "bank", "money", "query", "document", "web", "search", "given", "passage", "answer", "relevant", "no", "yes",
    "and", "or", "to", "in", "it", "was", "big", "small", "red", "blue", "green", "one", "two", "three", "four",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *WORDS, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
SIZES: dict[str, Any] = {"vocab_size": len(VOCABULARY), "hidden_size": 64, "intermediate_size": 96,
                         "num_hidden_layers": 3, "num_attention_heads": 2}
_DISTIL = {"vocab_size": len(VOCABULARY), "dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 2}
_CONTROL = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
POSITIONS = 300

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES | {"max_position_embeddings": POSITIONS}),
    "roberta": ("Roberta", SIZES | {"max_position_embeddings": POSITIONS + 1, "type_vocab_size": 1, "pad_token_id": 0}),
    "xlm_roberta": ("XLMRoberta", SIZES | {"max_position_embeddings": POSITIONS + 1, "type_vocab_size": 1,
                                           "pad_token_id": 0}),
    "distilbert": ("DistilBert", _DISTIL | {"max_position_embeddings": POSITIONS}),
    "mpnet": ("MPNet", SIZES | {"max_position_embeddings": POSITIONS + 2}),
    "nomic_bert": ("NomicBert", SIZES | {"max_position_embeddings": POSITIONS}),
    "modernbert": ("ModernBert", SIZES | _CONTROL | {"max_position_embeddings": POSITIONS, "local_attention": 32,
                                                     "num_hidden_layers": 4}),
}  # fmt: skip


def tiny_encoder(family: str, kind: str = "Model", **changes: Any) -> PreTrainedModel:
    """Return a model of the family with weights that are random in every place, norms and biases too."""
    name, values = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**(values | changes))
    model: PreTrainedModel = getattr(transformers, f"{name}{kind}")(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    return model


def write_bge_m3(folder: Path) -> "BgeM3Reference":
    """Write a model with BGE-M3's heads for lexical weights and token vectors, and return what it should answer."""
    model = tiny_encoder("xlm_roberta")
    torch.manual_seed(2)
    heads = {"sparse_linear.weight": torch.randn(1, 64), "sparse_linear.bias": torch.randn(1) * 0.1,
             "colbert_linear.weight": torch.randn(48, 64), "colbert_linear.bias": torch.randn(48)}
    model.save_pretrained(folder)
    save_file({**model.state_dict(), **heads}, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)
    write_modules(folder, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    return BgeM3Reference(model, heads)


@dataclass(frozen=True)
class BgeM3Reference:
    """BGEM3FlagModel's arithmetic (FlagEmbedding, modeling.py and m3.py), written out."""

    model: PreTrainedModel
    heads: dict[str, torch.Tensor]

    def __call__(self, ids: list[int]) -> tuple[torch.Tensor, dict[int, float], torch.Tensor]:
        """The dense vector [64], the lexical weight by token id, and the token vectors [tokens - 1, 48] of one text."""
        with torch.inference_mode():
            hidden = self.model(torch.tensor([ids])).last_hidden_state[0]
            weights = torch.relu(hidden @ self.heads["sparse_linear.weight"].T + self.heads["sparse_linear.bias"])[:, 0]
            many = hidden[1:] @ self.heads["colbert_linear.weight"].T + self.heads["colbert_linear.bias"]
        largest: dict[int, float] = {}
        for token, weight in zip(ids, weights.tolist(), strict=True):
            if token > 3 and weight > largest.get(token, 0.0):
                largest[token] = weight
        normalize = torch.nn.functional.normalize
        return normalize(hidden[0], dim=0), largest, normalize(many, dim=1)


def word_tokenizer() -> Tokenizer:
    """A WordPiece tokenizer with BERT's template for one text and for two."""
    ids = {token: index for index, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def write_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Write the tokenizer as transformers does and return it."""
    fast = PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), pad_token="[PAD]", unk_token="[UNK]",
                                   cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
                                   model_max_length=POSITIONS,
                                   model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    fast.save_pretrained(folder)
    return fast


def write_modules(folder: Path, pooling: dict[str, Any], *, normalise: bool = True, **config: Any) -> None:
    """Write the files that make a folder a sentence-transformers model."""
    library = "sentence_transformers.models"
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if normalise else [])]
    (folder / "modules.json").write_text(json.dumps([
        {"idx": index, "name": str(index), "path": path, "type": f"{library}.{kind}"}
        for index, (path, kind) in enumerate(modules)]))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64} | pooling))
    if normalise:
        (folder / "2_Normalize").mkdir(exist_ok=True)
        (folder / "2_Normalize" / "config.json").write_text("{}")
    if config:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
