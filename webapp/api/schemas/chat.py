"""Requests and replies of `/v1/chat/completions`."""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from webapp.api.schemas.base import Body
from webapp.api.schemas.sampling import MAX_COUNT, MAX_TOP_LOGPROBS, FinishReason, SamplingBody, Usage

MAX_MESSAGES = 10_000
MAX_TOOLS = 128
NAME_PATTERN = r"^[a-zA-Z0-9_.-]{1,64}$"


class TextPart(Body):
    type: Literal["text"]
    text: str


Content = str | list[TextPart]


class SystemMessage(Body):
    role: Literal["system"]
    content: Content
    name: str | None = None


class DeveloperMessage(Body):
    """As a system message: this is what newer clients call it."""

    role: Literal["developer"]
    content: Content
    name: str | None = None


class UserMessage(Body):
    role: Literal["user"]
    content: Content
    name: str | None = None


class CalledFunction(Body):
    name: str = Field(pattern=NAME_PATTERN)
    arguments: str

    @field_validator("arguments")
    @classmethod
    def _check_arguments(cls, arguments: str) -> str:
        try:
            found = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the arguments are not JSON ({error})") from None
        if not isinstance(found, dict):
            raise ValueError("the arguments are not a JSON object")
        return arguments


class ToolCall(Body):
    id: str = Field(min_length=1, max_length=128)
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Body):
    role: Literal["assistant"]
    content: Content | None = None
    name: str | None = None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = Field(None, max_length=MAX_TOOLS)
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = Field(None, max_length=0)

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.content is None and not self.tool_calls:
            raise ValueError("an assistant's message has content or tool_calls")
        return self


class ToolMessage(Body):
    role: Literal["tool"]
    content: Content
    tool_call_id: str = Field(min_length=1, max_length=128)
    name: str | None = None


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Function(Body):
    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    name: str


class NamedTool(Body):
    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class TextFormat(Body):
    type: Literal["text"]


class JsonObjectFormat(Body):
    type: Literal["json_object"]


class JsonSchema(Body):
    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class ChatBody(SamplingBody):
    """A conversation to go on with."""

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_COUNT)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = Field(None, description="Taken and not used.")
    store: Literal[False] | None = Field(None, description="Nothing is stored for later retrieval.")
    service_tier: Literal["auto", "default"] | None = None
    modalities: list[Literal["text"]] | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Extra variables for the model's chat template, such as enable_thinking.")

    @field_validator("top_logprobs")
    @classmethod
    def _check_top_logprobs(cls, count: int | None, info: Any) -> int | None:
        if count is not None and not info.data.get("logprobs"):
            raise ValueError("it needs logprobs to be true")
        return count

    @field_validator("max_completion_tokens")
    @classmethod
    def _check_max_tokens(cls, count: int | None, info: Any) -> int | None:
        if None not in (count, info.data.get("max_tokens")):
            raise ValueError("set max_completion_tokens or max_tokens, not both")
        return count

    @field_validator("tool_choice")
    @classmethod
    def _check_tool_choice(cls, choice: ToolChoice | None, info: Any) -> ToolChoice | None:
        tools = info.data.get("tools")
        if choice in (None, "none") or "tools" not in info.data:
            return choice
        if not tools:
            raise ValueError("it needs tools")
        names = [tool.function.name for tool in tools]
        if isinstance(choice, NamedTool) and choice.function.name not in names:
            raise ValueError(f"there is no tool {choice.function.name[:64]!r}")
        return choice

    def sampling(self) -> dict[str, Any]:
        found = super().sampling()
        if self.max_completion_tokens is not None:
            found["max_tokens"] = self.max_completion_tokens
        if self.logprobs:
            found["logprobs"] = self.top_logprobs or 0
        return found


class FunctionReply(Body):
    name: str
    arguments: str


class ToolCallReply(Body):
    id: str
    type: Literal["function"] = "function"
    function: FunctionReply


class MessageReply(Body):
    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallReply] | None = None


class TopLogprob(Body):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(Body):
    content: list[TokenLogprob] | None
    refusal: None = None


class ChatChoice(Body):
    index: int
    message: MessageReply
    finish_reason: FinishReason
    logprobs: ChoiceLogprobs | None = None


class ChatReply(Body):
    """A finished reply. With `stream` it comes as server-sent events of chat.completion.chunk objects instead."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
