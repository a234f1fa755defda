"""`POST /tokenize` and `/detokenize`: a model's own tokenizer, without its engine."""

from typing import Any

from ninja import Router

from webapp.api.admission import model_named, require_ids
from webapp.api.auth import ApiRequest, Caller, any_key
from webapp.api.errors import bad_value
from webapp.api.limits import limits_take
from webapp.api.plans import builder_of, chat_prompt
from webapp.api.schemas.base import ERRORS
from webapp.api.schemas.completions import DetokenizeBody, DetokenizeReply, TokenizeBody, TokenizeReply
from webapp.serving.database import in_database

router = Router(tags=["Tokens"])


@router.post("/tokenize", auth=any_key, response={200: TokenizeReply, **ERRORS}, operation_id="tokenize",
             exclude_none=True, summary="Text or conversation to token ids")
async def tokenize(request: ApiRequest, body: TokenizeBody) -> Any:
    """Give the ids of `prompt`, or of `messages` as the model's chat template writes them."""
    await limits_take(request.auth.limits, tokens=0)
    return await in_database(_tokenize, body=body, caller=request.auth)


@router.post("/detokenize", auth=any_key, response={200: DetokenizeReply, **ERRORS}, operation_id="detokenize",
             summary="Token ids to text")
async def detokenize(request: ApiRequest, body: DetokenizeBody) -> Any:
    """Give the text of token ids, control tokens included."""
    await limits_take(request.auth.limits, tokens=0)
    return await in_database(_detokenize, body=body, caller=request.auth)


def _tokenize(*, body: TokenizeBody, caller: Caller) -> dict[str, Any]:
    named = model_named(reference=body.model, caller=caller)
    builder = builder_of(named.version)
    if (body.prompt is None) == (body.messages is None):
        raise bad_value("prompt", "Give either prompt or messages.")
    if body.messages is not None:
        ids = chat_prompt(body=body, builder=builder)
    else:
        ids = builder.tokenizer.encode(body.prompt or "", add_special_tokens=body.add_special_tokens)
    found: dict[str, Any] = {"count": len(ids), "max_model_len": named.limit, "tokens": ids}
    if body.return_token_strs:
        found["token_strs"] = [builder.tokenizer.backend.id_to_token(token_id) or "" for token_id in ids]
    return found


def _detokenize(*, body: DetokenizeBody, caller: Caller) -> dict[str, Any]:
    builder = builder_of(model_named(reference=body.model, caller=caller).version)
    require_ids(body.tokens, vocabulary=builder.vocab_size, param="tokens")
    return {"prompt": builder.tokenizer.decode(body.tokens, skip_special_tokens=False)}
