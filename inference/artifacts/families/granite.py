"""Granite 3: llama with multipliers on embeddings, scores, residuals and logits."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import Family, read_decoder
from inference.decoder_spec import DecoderSpec


def _read(reader: ConfigReader) -> DecoderSpec:
    bias = reader.flag("attention_bias")
    return read_decoder(
        reader, family="granite", attention_bias=bias, output_bias=bias, mlp_bias=reader.flag("mlp_bias"),
        embedding_multiplier=reader.positive("embedding_multiplier", 1.0),
        residual_multiplier=reader.positive("residual_multiplier", 1.0),
        query_scale=reader.positive("attention_multiplier", 1.0),
        logit_multiplier=1.0 / reader.positive("logits_scaling", 1.0),
    )  # fmt: skip


FAMILY = Family(name="granite", read=_read)
