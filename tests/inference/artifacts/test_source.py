"""Weights and configuration of a model as we read them against the same model in transformers."""

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from inference.artifacts.check import check_decoder_weights, count_parameters
from inference.artifacts.errors import ArtifactError
from inference.artifacts.families import stored_tensors
from inference.artifacts.gguf import dequantise
from inference.artifacts.source import ModelSource
from tests.tiny_models import write_tiny_gguf, write_tiny_llama


@pytest.mark.slow
def test_the_demo_model_has_the_weights_that_transformers_reads(demo_chat_path: Path) -> None:
    source = ModelSource.open(demo_chat_path)
    model = AutoModelForCausalLM.from_pretrained(demo_chat_path.parent, gguf_file=demo_chat_path.name,
                                                 dtype=torch.float32)
    theirs = model.state_dict()
    assert set(source.tensors) == set(theirs) - {"lm_head.weight"}  # tied
    for name, info in source.tensors.items():
        values = source.read_float32(name)
        assert values.shape == info.shape
        assert np.array_equal(values, theirs[name].numpy()), name
    assert count_parameters(source) == model.num_parameters()


def test_the_demo_model_has_the_configuration_that_transformers_reads(demo_chat_path: Path) -> None:
    from transformers import AutoConfig

    spec = ModelSource.open(demo_chat_path).decoder_spec()
    config = AutoConfig.from_pretrained(demo_chat_path.parent, gguf_file=demo_chat_path.name)
    assert spec.rope.theta == config.rope_parameters["rope_theta"]
    assert spec.rms_norm_eps == config.rms_norm_eps
    assert (spec.vocab_size, spec.hidden_size, spec.intermediate_size, spec.num_layers, spec.num_heads,
            spec.num_kv_heads, spec.head_dim, spec.max_position, spec.tie_word_embeddings) == (
        config.vocab_size, config.hidden_size, config.intermediate_size, config.num_hidden_layers,
        config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.max_position_embeddings,
        config.tie_word_embeddings)  # fmt: skip
    assert (spec.bos_token_id, spec.eos_token_ids) == (config.bos_token_id, (config.eos_token_id,))


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"attention_bias": True, "mlp_bias": True},
                                     {"head_dim": 32}, {"num_key_value_heads": 1}])  # fmt: skip
def test_reads_a_gguf_file_back_into_the_order_of_transformers(changes: dict[str, object], tmp_path: Path) -> None:
    metadata = {"llama.attention.key_length": changes["head_dim"]} if "head_dim" in changes else {}
    model = write_tiny_gguf(tmp_path / "m.gguf", metadata=metadata, **changes)
    source = ModelSource.open(tmp_path / "m.gguf")
    check_decoder_weights(source, source.decoder_spec())
    theirs = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    for name in source.tensors:
        assert np.array_equal(source.read_float32(name), theirs[name]), name
    assert set(theirs) - set(source.tensors) <= {"lm_head.weight"}


def test_raw_rows_of_queries_and_keys_are_in_the_order_of_transformers_too(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", quantisation=gguf.GGMLQuantizationType.Q8_0)
    source = ModelSource.open(tmp_path / "m.gguf")
    for name, info in source.tensors.items():
        raw = source.read_raw(name)
        assert raw.shape == (info.nbytes,)
        assert np.array_equal(dequantise(raw, info.dtype, info.shape), source.read_float32(name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_reads_safetensors_of_each_float_type(dtype: torch.dtype, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path)
    save_file({name: tensor.to(dtype) for name, tensor in load_file(tmp_path / "model.safetensors").items()},
              tmp_path / "model.safetensors")
    source = ModelSource.open(tmp_path)
    for name in source.tensors:
        assert np.array_equal(source.read_float32(name), model.state_dict()[name].to(dtype).float().numpy()), name


def test_reads_the_shards_that_transformers_wrote(tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    source = ModelSource.open(tmp_path)
    check_decoder_weights(source, source.decoder_spec())
    assert all(np.array_equal(source.read_float32(name), model.state_dict()[name].numpy()) for name in source.tensors)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"attention_bias": True}, {"mlp_bias": True}])
def test_expects_the_tensors_that_transformers_has(changes: dict[str, object], tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path, **changes)
    source = ModelSource.open(tmp_path)
    spec = source.decoder_spec()
    theirs = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if spec.tie_word_embeddings:
        del theirs["lm_head.weight"]
    assert {name: stored.shape for name, stored in stored_tensors(spec).items()} == theirs
    assert count_parameters(source) == model.num_parameters()


def test_files_beside_a_gguf_file_win_over_its_metadata(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    config = ModelSource.open(tmp_path).config
    assert config["max_position_embeddings"] == 256
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 128}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    spec = ModelSource.open(tmp_path).decoder_spec()
    assert (spec.max_position, spec.eos_token_ids) == (128, (2, 0))


def test_a_missing_misshapen_or_unknown_tensor_is_named(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    key = "model.layers.1.mlp.up_proj.weight"

    def refusal(changed: dict[str, torch.Tensor]) -> str:
        save_file(changed, tmp_path / "model.safetensors")
        source = ModelSource.open(tmp_path)
        with pytest.raises(ArtifactError) as caught:
            check_decoder_weights(source, source.decoder_spec())
        return str(caught.value)

    assert refusal({name: value for name, value in weights.items() if name != key}) == (
        f"weights: tensor '{key}' is missing")
    assert "has the shape [64, 96], expected [96, 64]" in refusal(weights | {key: weights[key].T.contiguous()})
    extra = weights | {"model.layers.2.extra": weights[key].clone()}
    assert "'model.layers.2.extra' is not one of a llama" in refusal(extra)
    assert "stored as I32" in refusal(weights | {key: weights[key].to(torch.int32)})


@pytest.mark.parametrize(("metadata", "words"), [
    ({"general.architecture": "mamba"}, "the architecture 'mamba' is not supported"),
    ({"llama.expert_count": 8}, "mixtures of experts"),
    ({"llama.context_length": None}, "lacks the metadata field llama.context_length"),
    ({"llama.rope.scaling.type": "ntk"}, "rope scaling 'ntk'"),
    ({"llama.rope.dimension_count": 8}, "rotates 8 of 16"),
    ({"llama.embedding_length": "many"}, "not single whole numbers"),
    ({"split.count": 3}, "is one of 3 parts of a model"),
    ({"llama.attention.head_count": 0}, "not single whole numbers"),
])  # fmt: skip
def test_a_gguf_file_that_the_decoder_can_not_run_is_refused(
    metadata: dict[str, object], words: str, tmp_path: Path
) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", metadata=metadata)
    with pytest.raises(ArtifactError, match=words):
        ModelSource.open(tmp_path / "m.gguf")


def test_an_unknown_gguf_tensor_is_refused(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", extra_tensors={"blk.0.ffn_gate_inp.weight": np.zeros((8, 64), np.float32)})
    with pytest.raises(ArtifactError, match="'blk.0.ffn_gate_inp.weight' is not one of a llama decoder"):
        ModelSource.open(tmp_path / "m.gguf")


def test_two_sets_of_weights_in_one_folder_are_refused(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path)
    write_tiny_gguf(tmp_path / "m.gguf")
    with pytest.raises(ArtifactError, match="more than one set of weights"):
        ModelSource.open(tmp_path)


def test_reading_and_checking_loads_no_torch(demo_chat_path: Path) -> None:
    code = ("import sys; from pathlib import Path; from inference.artifacts.check import *\n"
            f"source = ModelSource.open(Path({str(demo_chat_path)!r}))\n"
            "check_decoder_weights(source, source.decoder_spec()); source.read_float32('model.norm.weight')\n"
            "print([name for name in ('torch', 'transformers', 'numba', 'django') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
