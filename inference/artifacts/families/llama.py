"""Llama and what is built like it: Llama 1 to 3, SmolLM, TinyLlama, Yi."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import Family, read_decoder
from inference.decoder_spec import DecoderSpec


def _read(reader: ConfigReader) -> DecoderSpec:
    bias = reader.flag("attention_bias")
    return read_decoder(reader, family="llama", attention_bias=bias, output_bias=bias, mlp_bias=reader.flag("mlp_bias"))


FAMILY = Family(name="llama", read=_read)
