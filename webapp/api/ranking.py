"""`POST /v1/rerank`, `/v2/rerank`, `/rerank` and `/v1/score`: how well documents answer a query."""

import time
from pathlib import Path
from typing import Any

import msgspec
from django.http import HttpResponse
from ninja import Router

from inference.protocol import Score, Scored, ScoreMethod
from inference.text.pairs import PairText, QueryTooLongError, ScoreInputs
from webapp.api.admission import Named
from webapp.api.auth import ApiRequest, Caller, embed_key
from webapp.api.errors import JSON, ApiError, bad_value
from webapp.api.pooling import PooledPlan, facts_of, floats, model_for_pooling, new_frame_id, pooled_reply
from webapp.api.schemas.base import ERRORS
from webapp.api.schemas.ranking import MAX_DOCUMENTS, RerankBody, RerankReply, ScoreBody, ScoreReply, TextDocument
from webapp.serving.database import in_database

router = Router(tags=["Embeddings and ranking"])
DOCUMENTS_A_UNIT = 100  # how Cohere counts search units


@router.post("/v1/rerank", auth=embed_key, response={200: RerankReply, **ERRORS}, operation_id="rerank",
             summary="Sort documents by a query")
async def rerank(request: ApiRequest, body: RerankBody) -> HttpResponse:
    """Sort documents by how well they answer the query, the best first."""
    plan = await in_database(_rerank_plan, body=body, caller=request.auth)
    reply, headers = await pooled_reply(plan, request.auth, endpoint="rerank")
    assert isinstance(reply, Scored)
    return _answer(_ranked(body, plan, reply), headers)


@router.post("/v2/rerank", auth=embed_key, response={200: RerankReply, **ERRORS}, operation_id="rerank_v2",
             summary="Sort documents by a query (Cohere's path)")
async def rerank_v2(request: ApiRequest, body: RerankBody) -> HttpResponse:
    """As /v1/rerank."""
    return await rerank(request, body)


@router.post("/rerank", auth=embed_key, response={200: RerankReply, **ERRORS}, operation_id="rerank_bare",
             summary="Sort documents by a query (without a version in the path)")
async def rerank_bare(request: ApiRequest, body: RerankBody) -> HttpResponse:
    """As /v1/rerank."""
    return await rerank(request, body)


@router.post("/v1/score", auth=embed_key, response={200: ScoreReply, **ERRORS}, operation_id="score",
             summary="Score pairs of texts")
async def score(request: ApiRequest, body: ScoreBody) -> HttpResponse:
    """Score `text_1` against `text_2`, pair by pair, or one text against all."""
    plan = await in_database(_score_plan, body=body, caller=request.auth)
    reply, headers = await pooled_reply(plan, request.auth, endpoint="score")
    assert isinstance(reply, Scored)
    rows = [{"object": "score", "index": index, "score": value} for index, value in enumerate(floats(reply.scores))]
    return _answer({
        "id": f"score-{reply.request_id}", "object": "list", "created": int(time.time()), "model": plan.named.name,
        "method": reply.method, "data": rows,
        "usage": {"prompt_tokens": plan.tokens, "total_tokens": plan.tokens}}, headers)


def _answer(body: dict[str, Any], headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(body), content_type=JSON, headers=headers)


def _text(document: str | TextDocument) -> str:
    return document if isinstance(document, str) else document.text


def _ranked(body: RerankBody, plan: PooledPlan, reply: Scored) -> dict[str, Any]:
    scores = floats(reply.scores)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    rows: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in order[:body.top_n]]
    if body.return_documents:
        for row in rows:
            row["document"] = {"text": _text(body.documents[row["index"]])}
    units = -(-len(body.documents) // DOCUMENTS_A_UNIT)
    return {"id": f"rerank-{reply.request_id}", "model": plan.named.name, "method": reply.method, "results": rows,
            "meta": {"api_version": {"version": "2"},
                     "billed_units": {"search_units": units, "input_tokens": plan.tokens}},
            "usage": {"prompt_tokens": plan.tokens, "total_tokens": plan.tokens}}


def _rerank_plan(*, body: RerankBody, caller: Caller) -> PooledPlan:
    named, folder = model_for_pooling(reference=body.model, caller=caller)
    return _plan(named, folder, [body.query], [_text(document) for document in body.documents], body,
                 params=("query", "documents"))


def _score_plan(*, body: ScoreBody, caller: Caller) -> PooledPlan:
    """Pairs in the order of the request: one text stands for as many as the other side has. Raises ApiError."""
    first = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    second = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    for param, texts in (("text_1", first), ("text_2", second)):
        if not texts:
            raise bad_value(param, f"{param!r} is empty.")
        if len(texts) > MAX_DOCUMENTS:
            raise bad_value(param, f"At most {MAX_DOCUMENTS:,} texts are taken, and there are {len(texts):,}.")
    if len(second) == 1 and len(first) > 1:
        second = second * len(first)
    if len(first) not in (1, len(second)):
        raise bad_value("text_2", f"{len(first)} and {len(second)} texts make no pairs.")
    named, folder = model_for_pooling(reference=body.model, caller=caller)
    return _plan(named, folder, first, second, body, params=("text_1", "text_2"))


def _plan(named: Named, folder: Path, queries: list[str], documents: list[str], body: RerankBody | ScoreBody, *,
          params: tuple[str, str]) -> PooledPlan:
    """Tokenise the pairs for the model's way to score. Raises ApiError."""
    if any(not text for text in queries):
        raise bad_value(params[0], "A text is empty.")
    if any(not text for text in documents):
        raise bad_value(params[1], "A text is empty.")
    method = _method(named, folder, body.method)
    try:
        inputs = PairText.from_path(folder).encode(
            method, queries, documents, instruction=body.instruction, max_tokens=named.limit or None,
            max_tokens_per_doc=body.max_tokens_per_doc)
    except QueryTooLongError as error:
        raise ApiError(400, f"{str(error).capitalize()}.", code="context_length_exceeded", param=params[0]) from error
    frame = Score(request_id=new_frame_id(), method=method, documents=inputs.documents, queries=inputs.queries,
                  second_from=inputs.second_from, raw=bool(body.raw_scores))
    return PooledPlan(named, frame, _tokens(inputs))


def _tokens(inputs: ScoreInputs) -> int:
    return sum(map(len, inputs.documents)) + sum(map(len, inputs.queries))


def _method(named: Named, folder: Path, wished: ScoreMethod | None) -> ScoreMethod:
    """The wished way to score, or the model's own. Raises ApiError for one that it doesn't have."""
    known = facts_of(named, "methods") or _methods_by_files(named, folder)
    if wished is None:
        return known[0]  # type: ignore[return-value]
    if wished not in known:
        raise bad_value("method", f"This model does not score by {wished}; it has: {', '.join(known)}.")
    return wished


def _methods_by_files(named: Named, folder: Path) -> list[str]:
    """How a model that was never loaded scores. A reranker that is no classifier answers yes or no."""
    if named.version.model.kind == "embedding":
        return ["late_interaction", "cosine"]
    config = folder / "config.json"
    return ["cross_encoder"] if b"ForSequenceClassification" in config.read_bytes() else ["yes_no"]
