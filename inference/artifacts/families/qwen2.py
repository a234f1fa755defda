"""Qwen 2 and 2.5: llama with biases on queries, keys and values, and windows in the later layers where they are on."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import Family, read_decoder, windowed_layers
from inference.decoder_spec import DecoderSpec, LayerSpec

QWEN_CONTEXT = 32_768


def qwen_layers(reader: ConfigReader) -> tuple[LayerSpec, ...]:
    """Return the layers of a Qwen configuration: windows only with use_sliding_window, from max_window_layers on."""
    if not reader.flag("use_sliding_window"):
        return ()
    first = reader.whole("max_window_layers", 28, least=0)
    return windowed_layers(reader, window=reader.whole("sliding_window", 4096), default=lambda index: index >= first)


def _read(reader: ConfigReader) -> DecoderSpec:
    return read_decoder(reader, family="qwen2", attention_bias=True, layers=qwen_layers(reader),
                        max_position=reader.whole("max_position_embeddings", QWEN_CONTEXT))


FAMILY = Family(name="qwen2", read=_read)
