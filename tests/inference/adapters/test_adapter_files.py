"""LoRA adapters that can't be served are refused before anything is loaded, with the tensor or the setting by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.artifacts.adapter import AdapterSource
from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from tests.inference.adapters.making import write_adapter
from tests.inference.families.cases import write_tiny_decoder

MODULE = "model.layers.0.self_attn.q_proj"
A, B = (f"base_model.model.{MODULE}.lora_{side}.weight" for side in "AB")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and an adapter of it, as PEFT writes it."""
    folder = tmp_path_factory.mktemp("adapter")
    model = write_tiny_decoder(folder / "base", model_type="llama")
    write_adapter(folder / "good", model, seed=1)
    return folder


def _changed(folder: Path, tmp_path: Path, *, config: dict[str, Any] | None = None,
             tensors: dict[str, torch.Tensor | None] | None = None) -> AdapterSource:
    settings = json.loads((folder / "good" / "adapter_config.json").read_text()) | (config or {})
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    weights = load_file(folder / "good" / "adapter_model.safetensors") | (tensors or {})
    save_file({name: value for name, value in weights.items() if value is not None},
              tmp_path / "adapter_model.safetensors")
    source = AdapterSource(tmp_path)
    source.check_base(ModelSource.open(folder / "base").decoder_spec(), names=["org/base"])
    return source


def test_reads_what_peft_writes(folder: Path, tmp_path: Path) -> None:
    source = _changed(folder, tmp_path, config={"base_model_name_or_path": "someone/Base"})
    module = source.modules[MODULE]
    assert (len(source.modules), module.rank, module.scale, module.inputs, module.outputs) == (6, 4, 2.0, 64, 64)
    stored = load_file(folder / "good" / "adapter_model.safetensors")
    assert torch.equal(torch.from_numpy(source.read(MODULE, "A").copy()), stored[A])
    again = _changed(folder, tmp_path, config={"base_model_name_or_path": "someone/Base"})
    assert again.digest == source.digest
    assert _changed(folder, tmp_path, tensors={A: stored[A] + 1}).digest != source.digest
    assert _changed(folder, tmp_path, config={"lora_alpha": 9}).digest != source.digest


@pytest.mark.parametrize(("config", "words"), [
    ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
    ({"use_dora": True}, "use_dora is set"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save is set"),
    ({"bias": "all"}, "bias is 'all'"),
    ({"r": 0}, "r is '0'"),
    ({"r": 300, "rank_pattern": {}}, "rank 300, and at most 256"),
    ({"rank_pattern": {"q_proj": 5}}, "which are not of rank 5"),
    ({"rank_pattern": {"(a+)+$": 5}}, "only names of modules are taken"),
    ({"rank_pattern": [1]}, "rank_pattern is not an object"),
    ({"lora_alpha": "x"}, "lora_alpha is 'x'"),
    ({"target_modules": ["q_proj", "v_proj", "w_proj"]}, "target_modules has 'w_proj'"),
    ({"base_model_name_or_path": "someone/other"}, "was made for 'someone/other', not for 'org/base'"),
    ({"auto_mapping": {"custom_code": "x"}}, "never run"),
])  # fmt: skip
def test_a_setting_that_is_not_served_is_refused(folder: Path, tmp_path: Path, config: dict[str, Any],
                                                 words: str) -> None:
    with pytest.raises(ArtifactError, match=words) as refusal:
        _changed(folder, tmp_path, config=config)
    assert str(refusal.value).startswith("adapter_")


@pytest.mark.parametrize(("tensors", "words"), [
    ({B: None}, f"'{MODULE}.lora_B.weight' is missing beside lora_A"),
    ({B: torch.zeros(63, 4)}, rf"changes '{MODULE}' as \[63, 64\], and the base model's tensor is \[64, 64\]"),
    ({B: torch.zeros(64, 5)}, r"shapes \[4, 64\] and \[64, 5\], which are not of rank 4"),
    ({A: torch.zeros(4)}, "not of rank 4"),
    ({A: torch.zeros(4, 64, dtype=torch.int32)}, "not floating-point"),
    ({"base_model.model.lm_head.weight": torch.zeros(2, 2)}, "'base_model.model.lm_head.weight' is not a part"),
    ({A.replace("0", "7"): torch.zeros(4, 64), B.replace("0", "7"): torch.zeros(64, 4)},
     "changes 'model.layers.7.self_attn.q_proj', which the base model doesn't have"),
])  # fmt: skip
def test_a_tensor_that_does_not_fit_is_refused_by_name(folder: Path, tmp_path: Path,
                                                       tensors: dict[str, torch.Tensor | None], words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        _changed(folder, tmp_path, tensors=tensors)
