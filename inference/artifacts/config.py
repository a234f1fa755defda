"""Turns a Hugging Face configuration of a decoder into a DecoderSpec, or says what is not understood."""

from typing import Any

from inference.artifacts.config_reader import ConfigReader
from inference.artifacts.errors import ArtifactError
from inference.artifacts.families import FAMILIES
from inference.decoder_spec import DecoderSpec
from inference.spec import SpecError


def decoder_spec_from_config(
    config: dict[str, Any], generation_config: dict[str, Any], *, file: str = "config.json"
) -> DecoderSpec:
    """Return the spec that config (and the end ids of generation_config, which win) describe.

    file names the config in errors. Raises ArtifactError for an unknown architecture or an impossible value.
    Defaults are those of transformers' configuration class of the family.
    """
    reader = ConfigReader(config, file, generation_config)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ArtifactError(file, f"the architecture {str(family)[:60]!r} is not supported (known: "
                                  f"{', '.join(sorted(FAMILIES))})")
    if config.get("auto_map"):
        raise ArtifactError(file, "auto_map asks for the model's own Python code, which is never run")
    try:
        return FAMILIES[family].read(reader)
    except SpecError as error:
        raise ArtifactError(file, str(error)) from None
