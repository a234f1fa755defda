"""Cohere's and LangChain's clients against the running site."""

import cohere
import numpy as np
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, SecretStr

from tests.webapp.api.conftest import CHAT, EMBED, Program

pytestmark = pytest.mark.timeout(400)

DOCUMENTS = ["Bananas are yellow fruits.", "Paris is the capital of France.", "The train leaves at noon."]
QUERY = "What is the capital of France?"


def test_cohere_reranks(embedding: Program) -> None:
    client = cohere.ClientV2(api_key=embedding.key, base_url=embedding.site.url.rstrip("/"))
    ranked = client.rerank(model=EMBED, query=QUERY, documents=DOCUMENTS, top_n=2)
    assert [row.index for row in ranked.results][0] == 1
    assert len(ranked.results) == 2
    assert ranked.results[0].relevance_score > ranked.results[1].relevance_score


def test_jinas_way_to_ask_gives_documents_and_usage_on_every_path(embedding: Program) -> None:
    body = {"model": EMBED, "query": QUERY, "documents": [{"text": text} for text in DOCUMENTS],
            "return_documents": True}
    answers = [embedding.post(path, body).json() for path in ("v1/rerank", "v2/rerank", "rerank")]
    for answer in answers:
        assert answer["results"] == answers[0]["results"]
        assert answer["results"][0]["document"] == {"text": DOCUMENTS[1]}
        assert sorted(row["index"] for row in answer["results"]) == [0, 1, 2]
        assert answer["usage"]["total_tokens"] > 0
        assert answer["method"] == "late_interaction"


def test_score_gives_cosines_of_the_embeddings(embedding: Program) -> None:
    scored = embedding.post("v1/score", {"model": EMBED, "text_1": QUERY, "text_2": DOCUMENTS, "method": "cosine"})
    assert [row["index"] for row in scored.json()["data"]] == [0, 1, 2]
    vectors = np.array([row.embedding for row in embedding.openai.embeddings.create(
        model=EMBED, input=[QUERY, *DOCUMENTS]).data])
    np.testing.assert_allclose([row["score"] for row in scored.json()["data"]], vectors[1:] @ vectors[0], atol=1e-4)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def langchain(program: Program) -> ChatOpenAI:
    return ChatOpenAI(base_url=program.base_url, api_key=SecretStr(program.key), model=CHAT, temperature=0,
                      max_completion_tokens=60, max_retries=0)


def test_langchain_chats_streams_and_structures(program: Program) -> None:
    chat = langchain(program)
    question = [HumanMessage("What is the capital of France?")]
    assert chat.invoke(question).content == "The capital of France is Paris."
    assert "".join(str(chunk.content) for chunk in chat.stream(question)) == "The capital of France is Paris."
    structured = chat.with_structured_output(Person, method="json_schema")
    assert structured.invoke("Ada is 36 years old. Give name and age.") == Person(name="Ada", age=36)
    by_call = chat.with_structured_output(Person, method="function_calling")
    assert isinstance(by_call.invoke("Ada is 36 years old. Give name and age."), Person)


def test_langchain_embeds(embedding: Program) -> None:
    client = OpenAIEmbeddings(base_url=embedding.base_url, api_key=SecretStr(embedding.key), model=EMBED,
                              check_embedding_ctx_length=False)  # it would fetch OpenAI's own tokenizer
    vectors = client.embed_documents(DOCUMENTS)
    assert len(vectors) == 3 and len(vectors[0]) == 384
    np.testing.assert_allclose(client.embed_query(DOCUMENTS[0]), vectors[0], atol=1e-5)
