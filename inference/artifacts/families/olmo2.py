"""OLMo 2: norms only on what attention and MLP add, queries and keys normed over all heads together."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import ATTENTION_NAMES, MLP_NAMES, Family, read_decoder
from inference.decoder_spec import DecoderSpec


def _read(reader: ConfigReader) -> DecoderSpec:
    bias = reader.flag("attention_bias")
    return read_decoder(reader, family="olmo2", norm_places="after", qk_norm="whole", attention_bias=bias,
                        output_bias=bias, rms_norm_eps=reader.positive("rms_norm_eps", 1e-5))


FAMILY = Family(
    name="olmo2", read=_read,
    layer_names={
        **ATTENTION_NAMES, **MLP_NAMES, "post_attention_layernorm": ("attention_post_norm",),
        "post_feedforward_layernorm": ("mlp_post_norm",),
    },
)  # fmt: skip
