"""Reads the header of a GGUF file for planning: a configuration, the bytes of all tensors and their parameters.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. inference.artifacts.gguf reads everything and needs
numpy; here long lists such as vocabularies are passed over.
"""

import math
import mmap
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.artifacts.mapping import map_file
from inference.planner.layout import StoredWeights

STRING, ARRAY = 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
MOST_FIELDS, MOST_TENSORS, MOST_ITEMS, KEPT_ITEMS = 100_000, 1_000_000, 4_000_000, 4_096

# Type number: name, values in a block, bytes of a block. Source: ggml's type_traits; tests compare the gguf package.
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
FAMILIES = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "gemma3": "gemma3_text", "gpt-oss": "gpt_oss",
            "deepseek2": "deepseek_v3", "glm4moe": "glm4_moe", "command-r": "cohere", "gptneox": "gpt_neox"}
# What a configuration calls the metadata fields of an architecture.
FIELDS = {
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
    "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window", "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length", "n_shared_experts": "expert_shared_count",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "first_k_dense_replace": "leading_dense_block_count", "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank", "num_experts": "expert_count",
}


def read_gguf(path: Path) -> tuple[dict[str, Any], StoredWeights]:
    """Return a configuration in Hugging Face's words, and what the tensor table says. Raises ArtifactError."""
    with map_file(path) as data:
        reader = _Reader(data, path.name)
        tensors, fields = reader.preamble()
        metadata = {reader.text(): reader.value(reader.number("<I")) for _ in range(fields)}
        table = {reader.text(): reader.tensor() for _ in range(tensors)}
    return _config(metadata, table, path.name), StoredWeights(
        nbytes=sum(nbytes for _, _, nbytes in table.values()),
        parameters=sum(math.prod(shape) for name, (_, shape, _) in table.items() if name != "rope_freqs.weight"),
        dtypes=", ".join(sorted(Counter(kind for kind, _, _ in table.values()))),
    )


class _Reader:
    """Reads forward through a mapped header; every length is checked against the file."""

    def __init__(self, data: mmap.mmap, file: str) -> None:
        self.data, self.file, self.position = data, file, 0

    def number(self, form: str) -> Any:
        size = struct.calcsize(form)
        self.need(size)
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += size
        return value

    def need(self, nbytes: int) -> None:
        if nbytes > len(self.data) - self.position:
            raise ArtifactError(self.file, f"the header at byte {self.position:,} goes past the end of the file")

    def preamble(self) -> tuple[int, int]:
        """Return the counts of tensors and metadata fields."""
        if self.data[:4] != b"GGUF":
            raise ArtifactError(self.file, "does not begin with GGUF, so it is not a GGUF file")
        self.position = 4
        version, tensors, fields = self.number("<I"), self.number("<Q"), self.number("<Q")
        if version not in (2, 3) or fields > MOST_FIELDS or tensors > MOST_TENSORS:
            raise ArtifactError(self.file, f"version {version} with {tensors:,} tensors and {fields:,} fields can't be")
        return tensors, fields

    def text(self) -> str:
        length = self.number("<Q")
        self.need(length)
        self.position += length
        return self.data[self.position - length : self.position].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Return a value; of a long list only None, since no plan needs one."""
        if form := SCALARS.get(kind):
            return self.number(form)
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise ArtifactError(self.file, f"a metadata field has the unknown type {kind}")
        item, count = self.number("<I"), self.number("<Q")
        if count > MOST_ITEMS or (item not in SCALARS and item != STRING):
            raise ArtifactError(self.file, f"a metadata list of {count:,} items of type {item} can't be")
        if item == STRING:
            for _ in range(count):
                length = self.number("<Q")
                self.need(length)
                self.position += length
            return None
        if count > KEPT_ITEMS:
            size = count * struct.calcsize(SCALARS[item])
            self.need(size)
            self.position += size
            return None
        return [self.number(SCALARS[item]) for _ in range(count)]

    def tensor(self) -> tuple[str, tuple[int, ...], int]:
        """Return type, shape and bytes of the next row of the tensor table."""
        dims = self.number("<I")
        if not 1 <= dims <= 4:
            raise ArtifactError(self.file, f"a tensor claims {dims:,} dimensions")
        shape = tuple(self.number("<Q") for _ in range(dims))
        kind = self.number("<I")
        self.number("<Q")  # its offset
        if kind not in TYPES:
            raise ArtifactError(self.file, f"a tensor has the unknown type {kind}")
        name, block, block_bytes = TYPES[kind]
        nbytes = math.prod(shape) // block * block_bytes
        if nbytes > len(self.data):
            raise ArtifactError(self.file, f"a tensor of {list(shape)} is larger than the file")
        return name, shape, nbytes


def _config(metadata: dict[str, Any], table: dict[str, Any], file: str) -> dict[str, Any]:
    architecture = metadata.get("general.architecture")
    embedding = table.get("token_embd.weight")
    if not isinstance(architecture, str) or embedding is None:
        raise ArtifactError(file, "names no architecture or has no token_embd.weight")
    config: dict[str, Any] = {
        "model_type": FAMILIES.get(architecture, architecture), "vocab_size": embedding[1][-1],
        "tie_word_embeddings": "output.weight" not in table, "torch_dtype": "float16",
    }
    for key, field in FIELDS.items():
        value = metadata.get(f"{architecture}.{field}")
        if isinstance(value, list):  # per layer; the largest is what has to fit
            value = max(value, default=None)
        if value is not None:
            config[key] = value
    if architecture == "llama" and config.get("num_experts"):
        config["model_type"] = "mixtral"
    if "kv_lora_rank" in config:
        config |= _latent(metadata, architecture)
    return config


def _latent(metadata: dict[str, Any], architecture: str) -> dict[str, Any]:
    """Return the sizes of latent attention; GGUF has them with the projections absorbed, and (…_mla) without."""
    def field(name: str) -> int:
        value = metadata.get(f"{architecture}.{name}")
        return value if isinstance(value, int) else 0

    rope = field("rope.dimension_count")
    key = field("attention.key_length_mla") or field("attention.key_length")
    return {"qk_rope_head_dim": rope, "qk_nope_head_dim": key - rope,
            "v_head_dim": field("attention.value_length_mla") or field("attention.value_length")}
