"""Lexical weights and token vectors over HTTP, for a model that has them: FlagEmbedding's arithmetic on its weights."""

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.inference.encoders.tiny_encoders import BgeM3Reference, word_tokenizer, write_bge_m3
from tests.webapp.api.conftest import EMBED, Program, error_of

pytestmark = pytest.mark.timeout(400)

NAME = "tinym3"
TEXTS = ["the cat sat on the mat", "what is the capital of france ?"]
ALL = ["dense", "sparse", "multi_vector"]


@pytest.fixture(scope="module")
def reference(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BgeM3Reference]:
    """The model is imported and loaded in float32."""
    folder = tmp_path_factory.mktemp("m3") / NAME
    folder.mkdir()
    made = write_bge_m3(folder)
    program.site.manage("import_model", str(folder), "--name", NAME)
    program.site.manage("deploy", NAME, "--mode", "float32", "--wait")
    yield made
    program.site.manage("undeploy", NAME)


def ask(program: Program, **more: Any) -> list[dict[str, Any]]:
    answer = program.post("v1/embeddings", {"model": NAME, "input": TEXTS} | more)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["data"])


def test_all_outputs_equal_the_reference(program: Program, reference: BgeM3Reference) -> None:
    for text, row in zip(TEXTS, ask(program, outputs=ALL), strict=True):
        vector, weights, many = reference(word_tokenizer().encode(text).ids)
        np.testing.assert_allclose(row["embedding"], vector, atol=2e-5)
        assert row["sparse_embedding"]["indices"] == sorted(weights)
        np.testing.assert_allclose(row["sparse_embedding"]["values"], [weights[token] for token in sorted(weights)],
                                   atol=2e-5)
        np.testing.assert_allclose(row["multi_vector_embedding"], many, atol=2e-5)


def test_base64_holds_little_endian_float32_and_only_what_was_asked_for(
        program: Program, reference: BgeM3Reference) -> None:
    for plain, packed in zip(ask(program, outputs=["multi_vector"]),
                             ask(program, outputs=["multi_vector"], encoding_format="base64"), strict=True):
        assert plain["embedding"] is None and "sparse_embedding" not in plain
        rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in packed["multi_vector_embedding"]]
        np.testing.assert_allclose(rows, plain["multi_vector_embedding"], atol=1e-7)


def test_a_model_without_them_says_what_it_has(embedding: Program, reference: BgeM3Reference) -> None:
    answer = embedding.post("v1/embeddings", {"model": EMBED, "input": "x", "outputs": ["sparse"]})
    assert answer.status_code == 400 and error_of(answer)["param"] == "outputs", answer.text
    assert "no sparse output; it has: dense, multi_vector" in error_of(answer)["message"]
