"""Qwen 3: queries and keys normed over each head, no biases."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import Family, read_decoder
from inference.artifacts.families.qwen2 import QWEN_CONTEXT, qwen_layers
from inference.decoder_spec import DecoderSpec


def _read(reader: ConfigReader) -> DecoderSpec:
    bias = reader.flag("attention_bias")
    return read_decoder(
        reader, family="qwen3", qk_norm="head", head_dim=reader.whole("head_dim", 128), attention_bias=bias,
        output_bias=bias, layers=qwen_layers(reader),
        max_position=reader.whole("max_position_embeddings", QWEN_CONTEXT),
    )  # fmt: skip


FAMILY = Family(name="qwen3", read=_read)
