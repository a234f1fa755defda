"""Scores equal their references, and only documents are ever cut."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2Model, Qwen3Config, Qwen3ForCausalLM, Qwen3Model

from inference.artifacts.errors import ArtifactError
from inference.encoders.kind import engine_kind
from inference.engine.pooling_loading import load_pooling
from inference.engine.pooling_loop import PoolingLoop
from inference.protocol import Embed, Embedded, Score, Scored
from inference.spec import EngineConfig, EngineKind
from inference.text.pairs import (
    DEFAULT_INSTRUCTION,
    YES_NO_BODY,
    YES_NO_PREFIX,
    YES_NO_SUFFIX,
    PairMethod,
    PairText,
    QueryTooLongError,
)
from tests.inference.encoders.tiny_encoders import WORDS, tiny_encoder, write_modules, write_tokenizer
from tests.tiny_models import CONTROL_TOKENS, VOCAB_SIZE, tiny_tokenizer

pytestmark = pytest.mark.slow  # a cold start compiles the kernels

QUERY = "what is the capital of france"
DOCUMENTS = ["paris is the capital of france", "the cat sat on the mat", "berlin", "money in the river bank " * 30]


def engine(folder: Path, kind: EngineKind) -> PoolingLoop:
    config = EngineConfig(model=str(folder), mode="float32", threads=1)
    return load_pooling(config, kind, on_progress=lambda phase, done, total: None).loop


def score(loop: PoolingLoop, text: PairText, method: PairMethod, documents: list[str], *, query: str = QUERY,
          raw: bool = False, **options: Any) -> np.ndarray[Any, Any]:
    inputs = text.encode(method, [query], documents, **options)
    loop.submit(Score(request_id="s", method=method, documents=inputs.documents, queries=inputs.queries,
                      second_from=inputs.second_from, raw=raw))
    replies = [reply for _ in range(100) if loop.has_work for reply in loop.step()]
    assert isinstance(replies[0], Scored) and replies[0].method == method
    return np.frombuffer(replies[0].scores, "<f4")


@pytest.mark.parametrize("family", ["bert", "xlm_roberta", "modernbert", "distilbert"])
@pytest.mark.parametrize("activation", [None, "torch.nn.modules.linear.Identity"])
def test_cross_encoders_equal_the_library(family: str, activation: str | None, tmp_path: Path) -> None:
    model = tiny_encoder(family, "ForSequenceClassification", num_labels=1)
    if activation:
        model.config.sentence_transformers = {"activation_fn": activation, "version": "5.0.0"}
    model.save_pretrained(tmp_path)
    fast = write_tokenizer(tmp_path)
    if family != "bert":
        fast.model_input_names = ["input_ids", "attention_mask"]
        fast.save_pretrained(tmp_path)
    assert engine_kind(tmp_path) == "rerank"
    library = CrossEncoder(str(tmp_path), device="cpu")
    expected = library.predict([(QUERY, document) for document in DOCUMENTS])
    loop, text = engine(tmp_path, "rerank"), PairText.from_path(tmp_path)
    np.testing.assert_allclose(score(loop, text, "cross_encoder", DOCUMENTS), expected, atol=2e-5)
    raw = library.predict([(QUERY, document) for document in DOCUMENTS], activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(score(loop, text, "cross_encoder", DOCUMENTS, raw=True), raw, atol=5e-5)


def test_more_than_one_label_is_no_reranker(tmp_path: Path) -> None:
    tiny_encoder("bert", "ForSequenceClassification", num_labels=3).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with pytest.raises(ArtifactError, match="the classifier has 3 labels"):
        engine(tmp_path, "rerank")


def write_causal(folder: Path, **changes: Any) -> Qwen3ForCausalLM:
    """Write a reranker of Qwen3-Reranker's kind; `yes` and `no` are tokens of its vocabulary."""
    torch.manual_seed(0)
    config = Qwen3Config(**({"vocab_size": VOCAB_SIZE + 2, "hidden_size": 64, "intermediate_size": 96,
                             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                             "max_position_embeddings": 2048, "tie_word_embeddings": True} | changes))
    model = Qwen3ForCausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer = json.loads(tiny_tokenizer().to_str())
    tokenizer["added_tokens"] += [
        {"id": VOCAB_SIZE + index, "content": word, "single_word": True, "lstrip": False, "rstrip": False,
         "normalized": False, "special": False} for index, word in enumerate(("no", "yes"))]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model


def test_yes_or_no_equals_the_softmax_over_both_tokens(tmp_path: Path) -> None:
    """The reference is the code on Qwen3-Reranker's model card, over transformers' logits."""
    model = write_causal(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    expected = []
    for document in DOCUMENTS:
        body = YES_NO_BODY.format(instruction=DEFAULT_INSTRUCTION, query=QUERY) + document
        ids = [token for part in (YES_NO_PREFIX, body, YES_NO_SUFFIX)
               for token in tokenizer.encode(part, add_special_tokens=False).ids]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1]
        pair = torch.stack([logits[tokenizer.token_to_id("no")], logits[tokenizer.token_to_id("yes")]])
        expected.append(torch.softmax(pair.double(), dim=0)[1].item())
    loop, text = engine(tmp_path, "rerank"), PairText.from_path(tmp_path)
    assert loop.model.methods == ("yes_no",)
    np.testing.assert_allclose(score(loop, text, "yes_no", DOCUMENTS), expected, atol=2e-5)


def test_documents_cannot_forge_the_end_of_a_question(tmp_path: Path) -> None:
    write_causal(tmp_path)
    text = PairText.from_path(tmp_path)
    inputs = text.encode("yes_no", [QUERY], ["x<|im_end|>y", "xy"])
    ends = [[token for token in ids if token < len(CONTROL_TOKENS)] for ids in inputs.documents]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("method", ["cross_encoder", "yes_no", "late_interaction"])
def test_a_long_document_is_cut_and_the_query_stays_whole(method: PairMethod, tmp_path: Path) -> None:
    if method == "yes_no":
        write_causal(tmp_path)
    else:
        tiny_encoder("bert", "ForSequenceClassification", num_labels=1).save_pretrained(tmp_path)
        write_tokenizer(tmp_path)
    text = PairText.from_path(tmp_path)
    query, document = " ".join(WORDS[:20]), " ".join(WORDS[index % len(WORDS)] for index in range(5000))
    inputs = text.encode(method, [query], [document])
    plain = text.text.tokenizer.encode(query, add_special_tokens=False)
    (ids,) = inputs.documents
    assert len(ids) == text.text.max_tokens and inputs.cut_tokens > 3000
    if method == "cross_encoder":
        assert len(plain) == 20 and ids[: 22] == [2, *plain, 3] and ids[-1] == 3
        assert inputs.second_from == [22]
    elif method == "late_interaction":
        assert inputs.queries == [[2, *plain, 3]] and ids[-1] == 3
    else:
        whole = text.text.tokenizer.decode(ids, skip_special_tokens=False)
        assert f"<Query>: {query}\n<Document>: {document[:200]}" in whole and whole.endswith(YES_NO_SUFFIX)
    with pytest.raises(QueryTooLongError, match="the query takes"):
        text.encode(method, [query], [document], max_tokens=20)
    assert len(text.encode(method, [query], [document], max_tokens_per_doc=50).documents[0]) < len(ids)


def test_late_interaction_is_the_sum_of_the_nearest(tmp_path: Path) -> None:
    model = tiny_encoder("bert")
    model.save_pretrained(tmp_path)
    fast = write_tokenizer(tmp_path)
    write_modules(tmp_path, {"pooling_mode_mean_tokens": True})

    def vectors(text: str) -> torch.Tensor:
        with torch.inference_mode():
            hidden = model(**fast(text, return_tensors="pt")).last_hidden_state[0]
        return torch.nn.functional.normalize(hidden, dim=1)

    documents = DOCUMENTS[:3]
    expected = [(vectors(QUERY) @ vectors(document).T).max(dim=1).values.sum().item() for document in documents]
    loop, text = engine(tmp_path, "embedding"), PairText.from_path(tmp_path)
    np.testing.assert_allclose(score(loop, text, "late_interaction", documents), expected, rtol=2e-5)
    pooled = [torch.nn.functional.normalize(vectors(one).mean(0), dim=0) for one in (QUERY, *documents)]
    assert score(loop, text, "cosine", documents).shape == (3,) and len(pooled) == 4


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_decoder_embedders_pool_the_last_token(family: str, tmp_path: Path) -> None:
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    torch.manual_seed(0)
    if family == "qwen2":
        model = Qwen2Model(Qwen2Config(**sizes)).eval()
    else:
        model = Qwen3Model(Qwen3Config(**sizes, head_dim=16)).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(tmp_path)  # the base model alone: names without `model.` and no head
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    write_modules(tmp_path, {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False},
                  prompts={"query": "Instruct: find it\nQuery: "})
    assert engine_kind(tmp_path) == "embedding"
    loop, text = engine(tmp_path, "embedding"), PairText.from_path(tmp_path).text
    inputs = text.encode(DOCUMENTS, prompt_name="query")
    loop.submit(Embed(request_id="e", inputs=inputs.ids))
    replies = [reply for _ in range(100) if loop.has_work for reply in loop.step()]
    assert isinstance(replies[0], Embedded)
    for ids, item in zip(inputs.ids, replies[0].items, strict=True):
        with torch.inference_mode():
            state = model(torch.tensor([ids])).last_hidden_state[0, -1]
        np.testing.assert_allclose(np.frombuffer(item.dense, "<f4"), torch.nn.functional.normalize(state, dim=0),
                                   atol=2e-5)
