"""DeepSeek V3 and R1: latent attention, 256 experts behind a sigmoid router that a bias keeps in balance."""

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.families.base import MLP_NAMES, NORM_NAMES, Family
from inference.artifacts.families.deepseek_v2 import LATENT_NAMES, SHARED_NAMES, read_deepseek
from inference.artifacts.families.experts import one_by_one, stacked
from inference.decoder_spec import DecoderSpec, MoeSpec

CONTEXT = 4096


def _read(reader: ConfigReader) -> DecoderSpec:
    reader.choice("topk_method", {"noaux_tc": True}, "noaux_tc")
    reader.choice("scoring_func", {"sigmoid": True}, "sigmoid")
    inner = reader.whole("moe_intermediate_size", 2048)
    moe = MoeSpec(
        num_experts=reader.whole("n_routed_experts", 256), intermediate_size=inner,
        top_k=reader.whole("num_experts_per_tok", 8), score="sigmoid", groups=reader.whole("n_group", 8),
        top_groups=reader.whole("topk_group", 4), group_score_top=2, norm_top_k=reader.flag("norm_topk_prob", True),
        correction_bias=True, scaling=reader.positive("routed_scaling_factor", 2.5),
        shared_experts_size=inner * reader.whole("n_shared_experts", 1, least=0),
    )  # fmt: skip
    return read_deepseek(
        reader, family="deepseek_v3", interleaved=reader.flag("rope_interleave", True), moe=moe,
        first_dense=reader.whole("first_k_dense_replace", 3, least=0),
        max_position=reader.whole("max_position_embeddings", CONTEXT),
    )  # fmt: skip


def _is_of_later_tokens(spec: DecoderSpec, name: str) -> bool:
    """Whether a tensor belongs to the layer after the last, which guesses further tokens and isn't used."""
    return name.startswith(f"model.layers.{spec.num_layers}.")


FAMILY = Family(
    name="deepseek_v3", read=_read, layer_names={**NORM_NAMES, **LATENT_NAMES, **MLP_NAMES, **SHARED_NAMES},
    expert_layouts=(one_by_one("mlp.experts", router="mlp.gate"), stacked()), is_unused=_is_of_later_tokens,
)  # fmt: skip
