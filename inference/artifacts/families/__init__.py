"""Every decoder family that runs natively, by the model_type of its configuration. A new one is a file and a line."""

from collections.abc import Collection

from inference.artifacts.families import (
    deepseek_v2,
    deepseek_v3,
    gemma2,
    gemma3,
    gpt_oss,
    granite,
    llama,
    mistral,
    mixtral,
    olmo2,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    smollm3,
)
from inference.artifacts.families.base import Family
from inference.artifacts.parts import Stored
from inference.decoder_spec import DecoderSpec

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (
        deepseek_v2, deepseek_v3, gemma2, gemma3, gpt_oss, granite, llama, mistral, mixtral, olmo2, phi3, qwen2,
        qwen2_moe, qwen3, qwen3_moe, smollm3,
    )
}  # fmt: skip


def stored_tensors(spec: DecoderSpec, present: Collection[str] = ()) -> dict[str, Stored]:
    """Return every tensor that a checkpoint of this spec holds, by its name as transformers has it.

    present: the names that there are, by which one of several layouts of a family is told.
    """
    return FAMILIES[spec.family].tensors(spec, present)


def is_unused(spec: DecoderSpec, name: str) -> bool:
    """Return whether a stored tensor that holds no part of the decoder may be left unread."""
    return FAMILIES[spec.family].is_unused(spec, name)
