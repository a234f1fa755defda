"""Checks on LoRA adapters: that they are of a kind that can be added at run time and fit their base."""

from inference.artifacts.adapter import CONFIG, AdapterSource, read_adapter_config
from inference.artifacts.source import ModelSource
from registry.checks.subject import Subject


def check_adapter_config(subject: Subject) -> str:
    """The adapter is a LoRA of a kind that is served."""
    config = read_adapter_config(subject.folder)
    return f"LoRA of rank {config.whole('r')} for {str(config.get('base_model_name_or_path'))[:80]!r}"


def check_adapter_weights(subject: Subject) -> str:
    """Each changed matrix has its two parts, in shapes that fit each other and, where it is known, the base."""
    adapter = AdapterSource(subject.folder)
    subject.parameters = sum(module.rank * (module.inputs + module.outputs) for module in adapter.modules.values())
    if subject.base is None:
        subject.warn(CONFIG, "no base model was given to compare the shapes with")
    else:
        spec = ModelSource.open(subject.base).decoder_spec()
        adapter.check_base(spec)
        subject.context_length = spec.max_position
    return f"{len(adapter.modules):,} matrices changed, {subject.parameters:,} parameters"
