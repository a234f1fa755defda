"""`POST /v1/chat/completions`: replies to a conversation, whole or as they are written."""

import secrets
import string
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import msgspec
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from ninja import Router

from inference.text.tool_calls import Call, Piece
from webapp.api.asgi import EventStream
from webapp.api.auth import ApiRequest, chat_key
from webapp.api.errors import JSON
from webapp.api.logprobs import chat_logprobs
from webapp.api.plans import chat_plan
from webapp.api.runs import Run
from webapp.api.schemas.base import ERRORS, STREAMED
from webapp.api.schemas.chat import ChatBody, ChatReply
from webapp.api.sse import KEEP_ALIVE, event, to_the_end
from webapp.serving.database import in_database
from webapp.serving.replies import Part, Text
from webapp.serving.reply_channel import ReplyEnd

router = Router(tags=["Replies"])
ENDPOINT = "chat.completions"
ID_LETTERS = string.ascii_letters + string.digits


@router.post("/v1/chat/completions", auth=chat_key, response={200: ChatReply, **ERRORS},
             operation_id="chat_completions", summary="Reply to a conversation", openapi_extra=STREAMED)
async def chat_completions(request: ApiRequest, body: ChatBody) -> HttpResponseBase:
    """Send the whole reply, or with `stream` server-sent events of `chat.completion.chunk`, then `[DONE]`."""
    run = Run(await in_database(chat_plan, body=body, caller=request.auth), request.auth, endpoint=ENDPOINT)
    try:
        await run.begin()
        if body.stream:
            await run.wait_first()
            wants_usage = body.stream_options is not None and body.stream_options.include_usage
            events = _events(run, wants_usage=wants_usage, wants_logprobs=bool(body.logprobs))
            return EventStream(to_the_end(events), on_close=run.close, headers=run.headers)
        reply = await _whole(run, wants_logprobs=bool(body.logprobs))
        run.close()
        return HttpResponse(msgspec.json.encode(reply), content_type=JSON, headers=run.headers)
    except BaseException:
        run.close()
        raise


class _Choice:
    """One reply as it grows: what its text means, and what of it was not sent yet."""

    def __init__(self, run: Run, index: int, *, wants_logprobs: bool) -> None:
        self.index = index
        self.begun = False
        self.calls: list[dict[str, Any]] = []
        self._reader = run.plan.reader()
        self._tokenizer = run.plan.builder.tokenizer
        self._form = run.plan.form
        self.wants_logprobs = wants_logprobs
        self.logprobs: list[dict[str, Any]] = []

    def take(self, part: Text) -> list[dict[str, Any]]:
        """The deltas that new text brings."""
        if self.wants_logprobs:
            self.logprobs += chat_logprobs(part.entries, self._tokenizer)
        return self._deltas(self._reader.feed(part.text))

    def finish(self) -> list[dict[str, Any]]:
        """The deltas of what was held back."""
        return self._deltas(self._reader.finish())

    def finish_reason(self, end: ReplyEnd) -> str:
        return "tool_calls" if self.calls and end.reason == "stop" else end.reason

    def _deltas(self, pieces: Iterable[Piece | Call]) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = []
        for piece in pieces:
            if isinstance(piece, Call):
                call: dict[str, Any] = {"id": self._call_id(), "type": "function",
                        "function": {"name": piece.name, "arguments": piece.arguments}}
                deltas.append({"tool_calls": [{"index": len(self.calls), **call}]})
                self.calls.append(call)
            else:
                deltas.append({"reasoning_content" if piece.kind == "reasoning" else "content": piece.text})
        return deltas

    def _call_id(self) -> str:
        mistral = self._form is not None and self._form.family.startswith("mistral")
        start, size = ("", 9) if mistral else ("call_", 24)
        return start + "".join(secrets.choice(ID_LETTERS) for _ in range(size))


async def _whole(run: Run, *, wants_logprobs: bool) -> dict[str, Any]:
    """The finished replies of a run. Raises ApiError."""
    choices = [_Choice(run, index, wants_logprobs=wants_logprobs) for index in range(len(run.pks))]
    deltas: list[list[dict[str, Any]]] = [[] for _ in choices]
    while not run.over:
        found = await run.next()
        if found is not None:
            index, part = found
            deltas[index] += choices[index].take(part) if isinstance(part, Text) else choices[index].finish()
    return {"id": f"chatcmpl-{run.id}", "object": "chat.completion", "created": run.created,
            "model": run.plan.named.name, "usage": run.usage(),
            "choices": [_message(choice, deltas[choice.index], run.ends[choice.index]) for choice in choices]}


def _message(choice: _Choice, deltas: Sequence[dict[str, Any]], end: ReplyEnd) -> dict[str, Any]:
    content = "".join(delta.get("content", "") for delta in deltas)
    reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if choice.calls:
        message |= {"content": content or None, "tool_calls": choice.calls}
    logprobs = {"content": choice.logprobs, "refusal": None} if choice.wants_logprobs else None
    return {"index": choice.index, "message": message, "logprobs": logprobs,
            "finish_reason": choice.finish_reason(end)}


async def _events(run: Run, *, wants_usage: bool, wants_logprobs: bool) -> AsyncGenerator[bytes, None]:
    """The events of a streamed run, without [DONE]. Raises ApiError."""
    choices = [_Choice(run, index, wants_logprobs=wants_logprobs) for index in range(len(run.pks))]
    chunk = {"id": f"chatcmpl-{run.id}", "object": "chat.completion.chunk", "created": run.created,
             "model": run.plan.named.name} | ({"usage": None} if wants_usage else {})
    while not run.over:
        found = await run.next()
        if found is None:
            yield KEEP_ALIVE
            continue
        if rows := _rows(choices[found[0]], found[1]):
            yield b"".join(event(chunk | {"choices": [row]}) for row in rows)
    if wants_usage:
        yield event(chunk | {"choices": [], "usage": run.usage()})


def _rows(choice: _Choice, part: Part) -> list[dict[str, Any]]:
    """The `choices` entries that a part brings, each for a chunk of its own; the role comes first."""
    rows = []
    if not choice.begun:
        choice.begun = True
        rows.append(_row(choice, {"role": "assistant", "content": "", "refusal": None}))
    for delta in choice.take(part) if isinstance(part, Text) else choice.finish():
        rows.append(_row(choice, delta, scored=True))
    if isinstance(part, ReplyEnd):
        rows.append(_row(choice, {}, scored=True, finish_reason=choice.finish_reason(part)))
    return rows


def _row(choice: _Choice, delta: dict[str, Any], *, scored: bool = False,
         finish_reason: str | None = None) -> dict[str, Any]:
    logprobs = None
    if scored and choice.logprobs:
        logprobs, choice.logprobs = {"content": choice.logprobs, "refusal": None}, []
    return {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
