"""SmolLM 3: llama in which every fourth layer leaves positions out."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import FULL, WINDOWED, Family, num_layers, read_decoder
from inference.artifacts.rope_config import read_rope
from inference.decoder_spec import DecoderSpec, LayerSpec

THETA = 2_000_000.0


def _rotates(reader: ConfigReader) -> list[bool]:
    """Return for each layer whether it rotates."""
    count, flags = num_layers(reader), reader.get("no_rope_layers")
    if flags is None:
        interval = reader.whole("no_rope_layer_interval", 4)
        return [(index + 1) % interval != 0 for index in range(count)]
    if not isinstance(flags, list) or len(flags) < count or any(flag not in (0, 1) for flag in flags):
        reader.refuse(f"no_rope_layers is not a list of at least {count} zeros and ones")
    return [bool(flag) for flag in flags[:count]]


def _layers(reader: ConfigReader) -> tuple[LayerSpec, ...]:
    rotates = _rotates(reader)
    has_window = reader.flag("use_sliding_window") and reader.get("sliding_window") is not None
    window = reader.whole("sliding_window") if has_window else None
    kinds = reader.words("layer_types", len(rotates), (WINDOWED, FULL)) or tuple(FULL if on else WINDOWED
                                                                                   for on in rotates)
    return tuple(LayerSpec(rope=0 if on else None, window=window if kind == WINDOWED else None)
                 for on, kind in zip(rotates, kinds, strict=True))


def _read(reader: ConfigReader) -> DecoderSpec:
    bias = reader.flag("attention_bias")
    head_dim = reader.whole("head_dim", reader.whole("hidden_size") // reader.whole("num_attention_heads"))
    return read_decoder(
        reader, family="smollm3", attention_bias=bias, output_bias=bias, mlp_bias=reader.flag("mlp_bias"),
        num_kv_heads=reader.whole("num_key_value_heads", 4), rope=read_rope(reader, head_dim=head_dim, theta=THETA),
        max_position=reader.whole("max_position_embeddings", 32_768), layers=_layers(reader),
        tie_word_embeddings=reader.flag("tie_word_embeddings", True),
    )  # fmt: skip


FAMILY = Family(name="smollm3", read=_read)
