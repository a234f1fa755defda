"""Small complete models that tests write with the field's own libraries: transformers, tokenizers, gguf."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

CONTROL_TOKENS = ("<|end|>", "<|im_start|>", "<|im_end|>")
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ġ", "Ġ")]
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
            "'<|im_end|>' + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def vocabulary() -> list[str]:
    """Return control tokens, the byte alphabet and what the merges make."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*CONTROL_TOKENS, *alphabet, *("".join(pair) for pair in MERGES)]


VOCAB_SIZE = len(vocabulary())


def tiny_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(vocabulary())}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL_TOKENS])
    return tokenizer


def tiny_config(**changes: Any) -> LlamaConfig:
    values = {
        "vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
        "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
    }
    return LlamaConfig(**(values | changes))


def tiny_llama(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(tiny_config(**changes)).eval()


def write_tiny_llama(folder: Path, *, max_shard_size: str = "1GB", **changes: Any) -> LlamaForCausalLM:
    """Write a complete chat model in Hugging Face layout and return it as transformers holds it."""
    model = tiny_llama(**changes)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return model


_GGUF_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
}  # fmt: skip


def _gguf_tensor(name: str, values: np.ndarray, config: LlamaConfig) -> tuple[str, np.ndarray]:
    """Rename and reorder a tensor as llama.cpp's converter does (LlamaModel.permute)."""
    for hf_part, gguf_part in _GGUF_NAMES.items():
        name = name.replace(hf_part, gguf_part)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    if (part := name.split(".")[-2]) in heads:
        count = heads[part]
        values = (values.reshape(count, 2, values.shape[0] // count // 2, *values.shape[1:])
                  .swapaxes(1, 2).reshape(values.shape))
    return name.replace("model.layers.", "blk."), values


def write_tiny_gguf(
    path: Path,
    *,
    quantisation: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    metadata: dict[str, Any] | None = None,
    extra_tensors: dict[str, np.ndarray] | None = None,
    **changes: Any,
) -> LlamaForCausalLM:
    """Write a complete llama GGUF file with the gguf package and return the model as transformers holds it.

    metadata: values to add or, with None, keys to leave out.
    """
    model = tiny_llama(**changes)
    config = model.config
    fields: dict[str, Any] = {
        "llama.context_length": 256, "llama.embedding_length": config.hidden_size,
        "llama.block_count": config.num_hidden_layers, "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-6, "llama.rope.freq_base": 10_000.0,
        "llama.rope.dimension_count": config.head_dim, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary(), "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
        "tokenizer.ggml.token_type": [3 if token in CONTROL_TOKENS else 1 for token in vocabulary()],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    } | (metadata or {})
    writer = gguf.GGUFWriter(path, fields.pop("general.architecture", "llama"))
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
              list: writer.add_array}
    for key, value in fields.items():
        if value is not None:
            adders[type(value)](key, value)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        gguf_name, values = _gguf_tensor(name, tensor.numpy(), config)
        kind = quantisation if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    for name, values in (extra_tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
