"""Requests and replies of `/v1/completions`, `/tokenize` and `/detokenize`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from webapp.api.schemas.base import Body, Ids, ModelBody, Text
from webapp.api.schemas.chat import MAX_MESSAGES, Message, Tool
from webapp.api.schemas.sampling import FinishReason, SamplingBody, Usage

DEFAULT_MAX_TOKENS = 16  # OpenAI's
MAX_PROMPTS = 128
MAX_IDS = 1_000_000


class CompletionBody(SamplingBody):
    """Texts to go on with, or their token ids."""

    prompt: Text | Annotated[list[Text], Field(min_length=1)] | Ids | Annotated[list[Ids], Field(min_length=1)]
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None

    def sampling(self) -> dict[str, Any]:
        found = {"max_tokens": DEFAULT_MAX_TOKENS} | super().sampling()
        return found if self.logprobs is None else found | {"logprobs": self.logprobs}


class CompletionLogprobs(Body):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Body):
    index: int
    text: str
    finish_reason: FinishReason
    logprobs: CompletionLogprobs | None = None


class CompletionReply(Body):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class TokenizeBody(ModelBody):
    """A text, or a conversation as the model's template writes it."""

    prompt: str | None = None
    messages: list[Message] | None = Field(None, min_length=1, max_length=MAX_MESSAGES)
    tools: list[Tool] | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False


class TokenizeReply(Body):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeBody(ModelBody):
    tokens: list[int] = Field(max_length=MAX_IDS)


class DetokenizeReply(Body):
    prompt: str
