"""Mistral: llama with one sliding window in every layer, or none."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import Family, num_layers, read_decoder
from inference.decoder_spec import DecoderSpec, LayerSpec


def _read(reader: ConfigReader) -> DecoderSpec:
    off = "sliding_window" in reader.values and reader.get("sliding_window") is None  # a missing one is not off
    window = None if off else reader.whole("sliding_window", 4096)
    return read_decoder(
        reader, family="mistral", num_kv_heads=reader.whole("num_key_value_heads", 8),
        max_position=reader.whole("max_position_embeddings", 131_072),
        layers=() if window is None else (LayerSpec(window=window),) * num_layers(reader),
    )  # fmt: skip


FAMILY = Family(name="mistral", read=_read)
