"""Vectors equal sentence-transformers': pooling, prompts, lengths, layers, and the demo model in both modes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.encoders.kind import engine_kind
from inference.encoders.sentence import read_sentence_spec
from inference.engine.pooling_loading import load_pooling
from inference.engine.pooling_loop import PoolingLoop
from inference.protocol import Embed, Embedded
from inference.spec import EngineConfig, Mode, SpecError
from inference.text.pooling import EmbeddingText, UnknownPromptError
from tests.inference.encoders.tiny_encoders import WORDS, tiny_encoder, write_bge_m3, write_modules, write_tokenizer

pytestmark = pytest.mark.slow  # a cold start compiles the kernels

TEXTS = ["the cat sat on the mat", "paris", "what is the capital of france ?", "big red river bank " * 40, "no"]


def engine(folder: Path, mode: Mode = "float32", threads: int = 1, **limits: Any) -> PoolingLoop:
    config = EngineConfig(model=str(folder), mode=mode, threads=threads, **limits)
    return load_pooling(config, "embedding", on_progress=lambda phase, done, total: None).loop


def embed(loop: PoolingLoop, ids: list[list[int]], **options: Any) -> Embedded:
    loop.submit(Embed(request_id="one", inputs=ids, **options))
    replies = [reply for _ in range(100) if loop.has_work for reply in loop.step()]
    assert isinstance(replies[0], Embedded), replies
    return replies[0]


def dense(reply: Embedded) -> np.ndarray[Any, Any]:
    return np.stack([np.frombuffer(item.dense, "<f4") for item in reply.items])


def write_model(folder: Path, pooling: dict[str, Any], **more: Any) -> SentenceTransformer:
    tiny_encoder("bert").save_pretrained(folder)
    write_tokenizer(folder)
    write_modules(folder, pooling, **more)
    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"])
def test_each_pooling_equals_the_library(mode: str, tmp_path: Path) -> None:
    name = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken",
            "weightedmean": "weightedmean_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}[mode]
    library = write_model(tmp_path, {f"pooling_mode_{name}": True, "pooling_mode_mean_tokens": mode == "mean"},
                          normalise=mode == "cls")
    ours = dense(embed(engine(tmp_path), EmbeddingText.from_path(tmp_path).encode(TEXTS).ids))
    np.testing.assert_allclose(ours, library.encode(TEXTS), atol=2e-5)


def test_prompts_can_be_left_out_of_pooling_and_layers_follow(tmp_path: Path) -> None:
    tiny_encoder("bert").save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    write_modules(tmp_path, {"pooling_mode_mean_tokens": True, "include_prompt": False}, normalise=False,
                  prompts={"query": "search the web : ", "document": ""}, default_prompt_name="query")
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "config.json").write_text(json.dumps(
        {"in_features": 64, "out_features": 24, "bias": True,
         "activation_function": "torch.nn.modules.activation.Tanh"}))
    torch.manual_seed(1)
    save_file({"linear.weight": torch.randn(24, 64), "linear.bias": torch.randn(24)},
              tmp_path / "2_Dense" / "model.safetensors")
    library, text = SentenceTransformer(str(tmp_path), device="cpu"), EmbeddingText.from_path(tmp_path)
    loop = engine(tmp_path)
    for name in (None, "document"):
        inputs = text.encode(TEXTS, prompt_name=name)
        assert inputs.prompt_tokens == (5 if name is None else 0)  # [CLS] search the web :
        ours = dense(embed(loop, inputs.ids, prompt_tokens=inputs.prompt_tokens))
        np.testing.assert_allclose(ours, library.encode(TEXTS, prompt_name=name), atol=2e-5)
    with pytest.raises(UnknownPromptError, match="it has: query, document"):
        text.encode(TEXTS, prompt_name="passage")


def test_texts_are_cut_as_the_library_cuts_them(tmp_path: Path) -> None:
    library = write_model(tmp_path, {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False})
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20, "do_lower_case": False}))
    library = SentenceTransformer(str(tmp_path), device="cpu")
    text = EmbeddingText.from_path(tmp_path)
    inputs = text.encode(TEXTS)
    assert max(map(len, inputs.ids)) == 20 == text.max_tokens and inputs.cut_tokens == 4 * 40 + 2 - 20
    np.testing.assert_allclose(dense(embed(engine(tmp_path), inputs.ids)), library.encode(TEXTS), atol=2e-5)


def test_dimensions_are_cut_before_normalising_where_the_model_declares_them(tmp_path: Path) -> None:
    write_model(tmp_path, {"pooling_mode_mean_tokens": True}, matryoshka_dimensions=[16, 32])
    library = SentenceTransformer(str(tmp_path), device="cpu", truncate_dim=16)
    loop, ids = engine(tmp_path), EmbeddingText.from_path(tmp_path).encode(TEXTS).ids
    expected = library.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(dense(embed(loop, ids, dimensions=16)), expected, atol=2e-5)
    with pytest.raises(ValueError, match="dimensions: is 20, and must be one of 16, 32"):
        loop.submit(Embed(request_id="x", inputs=ids, dimensions=20))


@pytest.mark.parametrize(("wrong", "file"), [
    ({"pooling_mode": "attention"}, "1_Pooling/config.json"), ({"pooling_mode": []}, "1_Pooling/config.json"),
])
def test_unknown_pooling_is_refused_with_its_file(wrong: dict[str, Any], file: str, tmp_path: Path) -> None:
    write_modules(tmp_path, wrong)
    with pytest.raises(ArtifactError, match=f"{file}: pooling_mode"):
        read_sentence_spec(tmp_path)


def test_paths_of_modules_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": "../other"}]))
    with pytest.raises(ArtifactError, match="leads out of the model's folder"):
        read_sentence_spec(tmp_path)


def test_bge_m3_gives_dense_sparse_and_multi_vectors(tmp_path: Path) -> None:
    reference = write_bge_m3(tmp_path)
    loop, ids = engine(tmp_path), EmbeddingText.from_path(tmp_path).encode(TEXTS).ids
    assert engine_kind(tmp_path) == "embedding" and loop.model.outputs == ("dense", "sparse", "multi_vector")
    reply = embed(loop, ids, outputs=["dense", "sparse", "multi_vector"])
    for text, item in zip(ids, reply.items, strict=True):
        vector, weights, many = reference(text)
        np.testing.assert_allclose(np.frombuffer(item.dense, "<f4"), vector, atol=2e-5)
        assert item.sparse_ids == sorted(weights)
        np.testing.assert_allclose(np.frombuffer(item.sparse_weights, "<f4"),
                                   [weights[token] for token in item.sparse_ids], atol=2e-5)
        np.testing.assert_allclose(np.frombuffer(item.multi_vector, "<f4").reshape(-1, item.multi_vector_size), many,
                                   atol=2e-5)


def test_tokenizers_that_know_more_than_the_embedding_are_refused(tmp_path: Path) -> None:
    tiny_encoder("bert", vocab_size=40).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with pytest.raises(ArtifactError, match="can give token id 98, and the model knows 40 tokens"):
        engine(tmp_path)


def test_what_runs_otherwise_is_said(tmp_path: Path) -> None:
    tiny_encoder("mpnet").save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    config = EngineConfig(model=str(tmp_path), mode="int8", threads=1)
    loaded = load_pooling(config, "embedding", on_progress=lambda phase, done, total: None)
    assert loaded.mode == "float32"
    assert loaded.notes == ("this model's weights run as float32, not as int8",)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_refused(tmp_path: Path) -> None:
    tiny_encoder("bert").save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with pytest.raises(SpecError, match="this machine has no CUDA device"):
        engine(tmp_path, device="cuda")


def demo_texts() -> list[str]:
    """64 texts of 2 to 250 tokens, in no order of length."""
    draw = np.random.default_rng(3)
    lengths = [int(length) for length in draw.integers(2, 250, 64)]
    return [" ".join(draw.choice(WORDS, length).tolist()) for length in lengths]


def test_the_demo_model_equals_the_library_in_any_batch_and_order(demo_embedding_path: Path) -> None:
    library = SentenceTransformer(str(demo_embedding_path), device="cpu")
    texts = demo_texts()
    expected = library.encode(texts, batch_size=32)
    ids = EmbeddingText.from_path(demo_embedding_path).encode(texts).ids
    loop = engine(demo_embedding_path, threads=2)
    together = dense(embed(loop, ids))
    assert np.sum(together * expected, axis=1).min() > 0.99999
    backwards = dense(embed(loop, ids[::-1]))[::-1]
    np.testing.assert_array_equal(backwards, together)
    for index in range(0, 64, 9):
        np.testing.assert_array_equal(dense(embed(loop, [ids[index]]))[0], together[index])
    rounded = dense(embed(engine(demo_embedding_path, "int8", threads=2), ids))
    assert np.sum(rounded * expected, axis=1).min() > 0.999


def test_the_demo_model_is_known_by_its_files(demo_embedding_path: Path, demo_chat_path: Path) -> None:
    assert engine_kind(demo_embedding_path) == "embedding"
    assert engine_kind(demo_chat_path) == "chat"
    assert ModelSource.open(demo_embedding_path).config["model_type"] == "bert"
