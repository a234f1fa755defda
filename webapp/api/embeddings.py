"""`POST /v1/embeddings`: vectors of texts, which share the engine's batches with those of other clients."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
from django.http import HttpResponse
from ninja import Router

from inference.protocol import Embed, Embedded, EmbeddingOutput, Vectors
from inference.text.pooling import EmbeddingText, UnknownPromptError
from webapp.api.admission import require_ids
from webapp.api.auth import ApiRequest, Caller, embed_key
from webapp.api.errors import JSON, ApiError, bad_value
from webapp.api.plans import prompt_list
from webapp.api.pooling import PooledPlan, facts_of, floats, model_for_pooling, new_frame_id, pooled_reply
from webapp.api.schemas.base import ERRORS
from webapp.api.schemas.embeddings import MAX_INPUTS, EmbeddingsBody, EmbeddingsReply
from webapp.serving.database import in_database

router = Router(tags=["Embeddings and ranking"])
ENDPOINT = "embeddings"


@router.post("/v1/embeddings", auth=embed_key, response={200: EmbeddingsReply, **ERRORS}, operation_id="embeddings",
             summary="Texts to vectors")
async def embeddings(request: ApiRequest, body: EmbeddingsBody) -> HttpResponse:
    """Give one vector for each input, in the order of the inputs."""
    plan = await in_database(_plan, body=body, caller=request.auth)
    reply, headers = await pooled_reply(plan, request.auth, endpoint=ENDPOINT)
    assert isinstance(reply, Embedded)
    as_base64 = body.encoding_format == "base64"
    rows = [{"object": "embedding", "index": index, **_row(item, as_base64=as_base64)}
            for index, item in enumerate(reply.items)]
    usage = {"prompt_tokens": plan.tokens, "total_tokens": plan.tokens}
    answer = {"object": "list", "data": rows, "model": plan.named.name, "usage": usage}
    return HttpResponse(msgspec.json.encode(answer), content_type=JSON, headers=headers)


def _plan(*, body: EmbeddingsBody, caller: Caller) -> PooledPlan:
    """Tokenise and check the request. Raises ApiError."""
    inputs = prompt_list(body.input, "input")
    if len(inputs) > MAX_INPUTS:
        raise bad_value("input", f"At most {MAX_INPUTS:,} inputs are taken, and there are {len(inputs):,}.")
    if any(len(item) == 0 for item in inputs):
        raise bad_value("input", "An input is empty.")
    named, folder = model_for_pooling(reference=body.model, caller=caller)
    if named.version.model.kind == "rerank":
        raise ApiError(400, f"{named.version} is a reranker and has no embeddings.", code="model_kind", param="model")
    text = EmbeddingText.from_path(folder)
    _check_outputs(body, text, facts_of(named, "outputs"))
    ids, prompt_tokens = _ids(inputs, body, text, limit=min(text.max_tokens, named.limit or text.max_tokens))
    outputs: list[EmbeddingOutput] = list(body.outputs or ["dense"])
    frame = Embed(request_id=new_frame_id(), inputs=ids, outputs=outputs, dimensions=body.dimensions,
                  normalise=body.normalize, prompt_tokens=prompt_tokens)
    return PooledPlan(named, frame, sum(map(len, ids)))


def _check_outputs(body: EmbeddingsBody, text: EmbeddingText, known: Sequence[str]) -> None:
    """Refuse what the model's files don't offer; what only a loaded engine knows, it refuses itself."""
    if body.dimensions is not None and not text.spec.takes_dimensions():
        raise bad_value("dimensions", "This model's vectors can't be cut: it declares no dimensions.")
    missing = next((name for name in body.outputs or () if known and name not in known), None)
    if missing is not None:
        raise bad_value("outputs", f"This model has no {missing} output; it has: {', '.join(known)}.")
    if len(set(body.outputs or ())) < len(body.outputs or ()):
        raise bad_value("outputs", "An output is named twice.")


def _ids(inputs: list[str | list[int]], body: EmbeddingsBody, text: EmbeddingText, *,
         limit: int) -> tuple[list[list[int]], int]:
    """Token ids of each input, and how many of each are an instruction that pooling leaves out. Raises ApiError."""
    if isinstance(inputs[0], str):
        try:
            encoded = text.encode([item for item in inputs if isinstance(item, str)], prompt_name=body.prompt_name,
                                  max_tokens=limit)
        except UnknownPromptError as error:
            raise bad_value("prompt_name", f"{error}.") from error
        if encoded.cut_tokens and not body.truncate:
            lengths = [len(text.tokenizer.encode(str(item), add_special_tokens=True)) for item in inputs]
            raise _too_long(limit, max(lengths), inputs, lengths.index(max(lengths)))
        return encoded.ids, encoded.prompt_tokens
    if body.prompt_name is not None:
        raise bad_value("prompt_name", "It can't be set for inputs that are token ids.")
    given = [item for item in inputs if isinstance(item, list)]
    for index, item in enumerate(given):
        require_ids(item, vocabulary=text.tokenizer.vocab_size, param="input")
        if len(item) > limit and not body.truncate:
            raise _too_long(limit, len(item), inputs, index)
    return [text.cut(item, limit) for item in given], 0


def _too_long(limit: int, tokens: int, inputs: Sequence[object], index: int) -> ApiError:
    param = "input" if len(inputs) == 1 else f"input[{index}]"
    return ApiError(400, f"This model's maximum input length is {limit} tokens. However, your input has {tokens} "
                         "tokens. Set truncate to have it cut.", code="context_length_exceeded", param=param)


def _row(item: Vectors, *, as_base64: bool) -> dict[str, Any]:
    """What one text became; arrays as numbers or as base64 of little-endian float32."""
    row: dict[str, Any] = {"embedding": None}
    if item.dense:
        row["embedding"] = base64.b64encode(item.dense).decode() if as_base64 else floats(item.dense).tolist()
    if item.sparse_weights:
        row["sparse_embedding"] = {"indices": item.sparse_ids, "values": floats(item.sparse_weights).tolist()}
    if item.multi_vector:
        width = 4 * item.multi_vector_size
        raws = [item.multi_vector[start:start + width] for start in range(0, len(item.multi_vector), width)]
        row["multi_vector_embedding"] = [
            base64.b64encode(raw).decode() if as_base64 else floats(raw).tolist() for raw in raws]
    return row
