"""`POST /v1/completions`: texts that go on after a prompt, whole or as they are written."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from ninja import Router

from webapp.api.asgi import EventStream
from webapp.api.auth import ApiRequest, chat_key
from webapp.api.errors import JSON
from webapp.api.logprobs import CompletionLogprobs
from webapp.api.plans import completion_plan
from webapp.api.runs import Run
from webapp.api.schemas.base import ERRORS, STREAMED
from webapp.api.schemas.completions import CompletionBody, CompletionReply
from webapp.api.sse import KEEP_ALIVE, event, to_the_end
from webapp.serving.database import in_database
from webapp.serving.replies import Part, Text

router = Router(tags=["Replies"])
ENDPOINT = "completions"


@router.post("/v1/completions", auth=chat_key, response={200: CompletionReply, **ERRORS}, operation_id="completions",
             summary="Go on with a text", openapi_extra=STREAMED)
async def completions(request: ApiRequest, body: CompletionBody) -> HttpResponseBase:
    """Send the whole texts, or with `stream` server-sent events, then `[DONE]`."""
    run = Run(await in_database(completion_plan, body=body, caller=request.auth), request.auth, endpoint=ENDPOINT)
    wants_logprobs = body.logprobs is not None
    try:
        await run.begin()
        if body.stream:
            await run.wait_first()
            wants_usage = body.stream_options is not None and body.stream_options.include_usage
            events = _events(run, wants_usage=wants_usage, wants_logprobs=wants_logprobs)
            return EventStream(to_the_end(events), on_close=run.close, headers=run.headers)
        reply = await _whole(run, wants_logprobs=wants_logprobs)
        run.close()
        return HttpResponse(msgspec.json.encode(reply), content_type=JSON, headers=run.headers)
    except BaseException:
        run.close()
        raise


async def _whole(run: Run, *, wants_logprobs: bool) -> dict[str, Any]:
    """The finished texts of a run. Raises ApiError."""
    parts: list[list[Text]] = [[] for _ in run.pks]
    while not run.over:
        found = await run.next()
        if found is not None and isinstance(found[1], Text):
            parts[found[0]].append(found[1])
    rows = []
    for index, texts in enumerate(parts):
        entries = [entry for text in texts for entry in text.entries]
        logprobs = CompletionLogprobs().of(entries, run.plan.builder.tokenizer) if wants_logprobs else None
        rows.append({"index": index, "text": "".join(text.text for text in texts), "logprobs": logprobs,
                     "finish_reason": run.ends[index].reason})
    return {**_head(run), "choices": rows, "usage": run.usage()}


async def _events(run: Run, *, wants_usage: bool, wants_logprobs: bool) -> AsyncGenerator[bytes, None]:
    """The events of a streamed run, without [DONE]. Raises ApiError."""
    chunk = _head(run) | ({"usage": None} if wants_usage else {})
    scores = [CompletionLogprobs() if wants_logprobs else None for _ in run.pks]
    while not run.over:
        found = await run.next()
        if found is None:
            yield KEEP_ALIVE
            continue
        row = _row(run, *found, scores[found[0]])
        if row["text"] or row["finish_reason"] or row["logprobs"]:
            yield event(chunk | {"choices": [row]})
    if wants_usage:
        yield event(chunk | {"choices": [], "usage": run.usage()})


def _head(run: Run) -> dict[str, Any]:
    return {"id": f"cmpl-{run.id}", "object": "text_completion", "created": run.created, "model": run.plan.named.name}


def _row(run: Run, index: int, part: Part, scores: CompletionLogprobs | None) -> dict[str, Any]:
    if not isinstance(part, Text):
        return {"index": index, "text": "", "logprobs": None, "finish_reason": part.reason}
    logprobs = scores.of(part.entries, run.plan.builder.tokenizer) if scores is not None and part.entries else None
    return {"index": index, "text": part.text, "logprobs": logprobs, "finish_reason": None}
