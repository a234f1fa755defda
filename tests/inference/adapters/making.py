"""Random LoRA adapters that PEFT itself makes and saves, for tiny random models."""

import re
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model


def write_adapter(folder: Path, model: Any, *, seed: int, **settings: Any) -> None:
    """Write a LoRA adapter of a transformers model with random weights, and leave the model as it was."""
    torch.manual_seed(seed)
    usual = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    adapted = get_peft_model(model, LoraConfig(**(usual | settings)))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if re.search(r"lora_[AB]", name):  # B starts at zero
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    adapted.save_pretrained(str(folder))
    adapted.unload()
