"""Requests and replies of rerank and score: one schema that the clients of Cohere and of Jina can read."""

from typing import Annotated, Literal

from pydantic import Field

from webapp.api.schemas.base import Body, ModelBody, Text

MAX_DOCUMENTS = 2048
Method = Literal["cross_encoder", "yes_no", "late_interaction", "cosine"]


class TextDocument(Body):
    text: Text


Document = Text | TextDocument


class RerankBody(ModelBody):
    """A query and the documents to sort by how well they answer it."""

    query: Text
    documents: list[Document] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    top_n: int | None = Field(None, ge=1, le=1_000_000)
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = Field(None, ge=1, le=1_000_000)
    raw_scores: bool | None = Field(None, description="The model's own logits, without its activation.")
    instruction: str | None = Field(None, max_length=10_000, description="What a yes/no reranker asks for.")
    priority: int | None = Field(None, ge=0, le=999, description="Taken and not used.")
    method: Method | None = Field(None, description="One of the model's ways to score; its own when not given.")


class RankedDocument(Body):
    text: str


class RankedRow(Body):
    index: int
    relevance_score: float
    document: RankedDocument | None = None


class BilledUnits(Body):
    search_units: int
    input_tokens: int


class ApiVersion(Body):
    version: str


class RerankMeta(Body):
    api_version: ApiVersion
    billed_units: BilledUnits


class RankUsage(Body):
    prompt_tokens: int
    total_tokens: int


class RerankReply(Body):
    """The best first; `index` is the place in the request's documents. method: how the scores were made."""

    id: str
    model: str
    method: Method
    results: list[RankedRow]
    meta: RerankMeta
    usage: RankUsage


class ScoreBody(ModelBody):
    """Pairs to score: one text against each of several, or two lists of the same length."""

    text_1: Text | Annotated[list[Text], Field(min_length=1)]
    text_2: Text | Annotated[list[Text], Field(min_length=1)]
    max_tokens_per_doc: int | None = Field(None, ge=1, le=1_000_000)
    raw_scores: bool | None = None
    instruction: str | None = Field(None, max_length=10_000)
    method: Method | None = None


class ScoreRow(Body):
    object: Literal["score"] = "score"
    index: int
    score: float


class ScoreReply(Body):
    """One row for each pair, in the order of the request. method: how the scores were made."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    method: Method
    data: list[ScoreRow]
    usage: RankUsage
