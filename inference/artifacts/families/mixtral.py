"""Mixtral: mistral with eight experts in place of each MLP, of which the router's two best compute a token."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import ATTENTION_NAMES, NORM_NAMES, Family, num_layers, read_decoder
from inference.artifacts.families.experts import one_by_one, stacked, with_experts
from inference.artifacts.rope_config import read_rope
from inference.decoder_spec import DecoderSpec, LayerSpec, MoeSpec

CONTEXT, THETA = 131_072, 1_000_000.0


def _read(reader: ConfigReader) -> DecoderSpec:
    window = None if reader.get("sliding_window") is None else reader.whole("sliding_window")
    count, head_dim = num_layers(reader), reader.whole("hidden_size") // reader.whole("num_attention_heads")
    head_dim = reader.whole("head_dim", head_dim)
    return read_decoder(
        reader, family="mixtral", head_dim=head_dim, rope=read_rope(reader, head_dim=head_dim, theta=THETA),
        num_kv_heads=reader.whole("num_key_value_heads", 8), rms_norm_eps=reader.positive("rms_norm_eps", 1e-5),
        max_position=reader.whole("max_position_embeddings", CONTEXT),
        layers=with_experts((LayerSpec(window=window),) * count, [True] * count),
        moe=MoeSpec(num_experts=reader.whole("num_local_experts", 8), top_k=reader.whole("num_experts_per_tok", 2),
                    intermediate_size=reader.whole("intermediate_size", 14_336), norm_top_k=True),
    )  # fmt: skip


FAMILY = Family(
    name="mixtral", read=_read, layer_names={**NORM_NAMES, **ATTENTION_NAMES},
    expert_layouts=(
        one_by_one("block_sparse_moe.experts", router="block_sparse_moe.gate", gate="w1", up="w3", down="w2"),
        stacked(),
    ),
)  # fmt: skip
