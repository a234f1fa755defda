"""Every family's hidden states equal transformers', in torch and in the compiled step, whoever shares the batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.encoders.config import encoder_spec_from_config
from inference.encoders.spec import EncoderSpec
from inference.encoders.weights import EncoderWeights, check_encoder, read_encoder
from inference.models.encoder_batch import text_batch
from inference.models.encoder_compiled import CompiledEncoder, can_compile
from inference.models.encoder_torch import TorchEncoder
from tests.inference.encoders.tiny_encoders import FAMILIES, POSITIONS, SIZES, tiny_encoder

pytestmark = pytest.mark.slow  # a cold start compiles the kernels

LENGTHS = (1, 7, 40, 150, POSITIONS - 10)  # modernbert's window of 16 to each side and mpnet's 128 are passed
TOLERANCE = 2e-5


def texts() -> list[list[int]]:
    draw = np.random.default_rng(0)
    return [draw.integers(4, SIZES["vocab_size"], length).tolist() for length in LENGTHS]


def load(folder: Path) -> tuple[EncoderSpec, EncoderWeights]:
    source = ModelSource.open(folder)
    spec = encoder_spec_from_config(source.config)
    check_encoder(source, spec)
    return spec, read_encoder(source, spec)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_equal_transformers(family: str, tmp_path: Path) -> None:
    model = tiny_encoder(family)
    model.save_pretrained(tmp_path)
    spec, weights = load(tmp_path)
    batch = text_batch(texts())
    encoders = [TorchEncoder(spec, weights)]
    if can_compile(spec):
        encoders.append(CompiledEncoder(spec, weights, mode="float32", threads=2))
    assert can_compile(spec) == (family in ("bert", "roberta", "xlm_roberta", "distilbert"))
    for encoder in encoders:
        hidden = encoder.encode(batch)
        for index, ids in enumerate(texts()):
            with torch.inference_mode():
                expected = model(torch.tensor([ids])).last_hidden_state[0].numpy()
            np.testing.assert_allclose(hidden[batch.starts[index] : batch.starts[index + 1]], expected, atol=TOLERANCE)


@pytest.mark.parametrize("mode", ["float32", "int8"])
def test_compiled_rows_keep_their_bits_in_any_company(mode: str, tmp_path: Path) -> None:
    tiny_encoder("bert").save_pretrained(tmp_path)
    spec, weights = load(tmp_path)
    encoder = CompiledEncoder(spec, weights, mode=mode, threads=2)
    batch = text_batch(texts())
    together = encoder.encode(batch)
    for index, ids in enumerate(texts()):
        np.testing.assert_array_equal(encoder.encode(text_batch([ids])),
                                      together[batch.starts[index] : batch.starts[index + 1]])


def test_the_8_bit_mode_is_near_float32(tmp_path: Path) -> None:
    tiny_encoder("bert").save_pretrained(tmp_path)
    spec, weights = load(tmp_path)
    batch = text_batch(texts())
    exact = TorchEncoder(spec, weights).encode(batch)
    rounded = CompiledEncoder(spec, weights, mode="int8", threads=2).encode(batch)
    cosine = np.sum(exact * rounded, axis=1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rounded, axis=1)
    assert cosine.min() > 0.999


def test_second_segments_have_their_type(tmp_path: Path) -> None:
    model = tiny_encoder("bert")
    model.save_pretrained(tmp_path)
    spec, weights = load(tmp_path)
    ids = texts()[2]
    hidden = CompiledEncoder(spec, weights, mode="float32", threads=1).encode(text_batch([ids], [15]))
    types = torch.tensor([[0] * 15 + [1] * 25])
    with torch.inference_mode():
        expected = model(torch.tensor([ids]), token_type_ids=types).last_hidden_state[0].numpy()
    np.testing.assert_allclose(hidden, expected, atol=TOLERANCE)


def test_half_precision_and_legacy_norm_names_are_read(tmp_path: Path) -> None:
    model = tiny_encoder("bert").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
               for name, value in tensors.items()}
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    spec, weights = load(tmp_path)
    hidden = TorchEncoder(spec, weights).encode(text_batch([texts()[1]]))
    with torch.inference_mode():
        expected = model.float()(torch.tensor([texts()[1]])).last_hidden_state[0].numpy()
    np.testing.assert_allclose(hidden, expected, atol=TOLERANCE)


@pytest.mark.parametrize(("change", "words"), [
    (lambda tensors: tensors.pop("encoder.layer.1.output.dense.weight"),
     r"tensor 'encoder.layer.1.output.dense.weight' is missing"),
    (lambda tensors: tensors.update({"encoder.layer.0.attention.self.query.weight": torch.zeros(64, 32)}),
     r"query.weight' has the shape \[64, 32\], expected \[64, 64\]"),
    (lambda tensors: tensors.update({"encoder.layer.9.output.dense.weight": torch.zeros(64, 96)}),
     r"'encoder.layer.9.output.dense.weight' is not one of a bert encoder with 3 layers"),
])
def test_wrong_tensors_are_refused_by_name(change, words: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    tiny_encoder("bert").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ArtifactError, match=words):
        load(tmp_path)


@pytest.mark.parametrize(("config", "words"), [
    ({"model_type": "bert"}, "is missing"),
    ({"model_type": "t5"}, "model_type 't5' is none of the encoders known here"),
    ({"model_type": "bert", "position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
    (SIZES | {"model_type": "bert", "max_position_embeddings": 8, "num_attention_heads": 3}, "num_heads: must divide"),
    (SIZES | {"model_type": "bert", "max_position_embeddings": "many"}, "max_position"),
    (SIZES | {"model_type": "bert", "max_position_embeddings": 8, "hidden_act": "mish"}, "hidden_act 'mish'"),
    (SIZES | {"model_type": "nomic_bert", "max_position_embeddings": 8, "rotary_emb_interleaved": True},
     "rotary_emb_interleaved"),
])
def test_impossible_configurations_are_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        encoder_spec_from_config(config)
