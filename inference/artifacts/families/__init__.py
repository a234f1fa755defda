"""Every decoder family that runs natively, by the model_type of its configuration. A new one is a file and a line."""

from inference.artifacts.families import (
    gemma2,
    gemma3,
    granite,
    llama,
    mistral,
    olmo2,
    phi3,
    qwen2,
    qwen3,
    smollm3,
)
from inference.artifacts.families.base import Family
from inference.artifacts.parts import Stored
from inference.decoder_spec import DecoderSpec

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (gemma2, gemma3, granite, llama, mistral, olmo2, phi3, qwen2, qwen3, smollm3)
}


def stored_tensors(spec: DecoderSpec) -> dict[str, Stored]:
    """Return every tensor that a checkpoint of this spec holds, by its name as transformers has it."""
    return FAMILIES[spec.family].tensors(spec)
