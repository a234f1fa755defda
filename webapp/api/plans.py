"""Everything about a reply that is decided before it is queued: prompt, sampling, constraint, and how it is read."""

import json
from dataclasses import dataclass
from typing import Any

from inference.choices import check_choices
from inference.spec import Constraint, SpecError
from inference.text.chat_template import TemplateError
from inference.text.constraint import check_constraint
from inference.text.prompt import PromptBuilder
from inference.text.tool_calls import ReplyReader, ToolFormat, ToolWish, format_of, reply_constraint
from inference.text.tool_calls.formats import THOUGHT_BEGINS
from inference.text.tool_calls.grammar import thought_constraint
from registry.errors import BlobMissing
from registry.models import Version
from webapp.api.admission import Named, folder_of, model_named, require_ids, require_room
from webapp.api.auth import Caller
from webapp.api.errors import ApiError, bad_value, overloaded
from webapp.api.messages import template_messages, template_tools
from webapp.api.schemas.chat import ChatBody, JsonObjectFormat, JsonSchemaFormat, NamedTool, Tool
from webapp.api.schemas.completions import MAX_PROMPTS, CompletionBody
from webapp.api.schemas.sampling import SamplingBody

ANY_ARGUMENTS = {"type": "object"}


@dataclass(frozen=True, kw_only=True)
class ReplyPlan:
    """prompts: token ids; each gets `choices` replies. form: how its model writes calls and thoughts, None for plain
    text. tools: whether calls are looked for. thinking: the prompt has opened a thought."""

    named: Named
    builder: PromptBuilder
    prompts: list[list[int]]
    sampling: dict[str, Any]
    choices: int
    form: ToolFormat | None = None
    tools: bool = False
    thinking: bool = False

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    def reader(self) -> ReplyReader:
        return ReplyReader(self.form, tools=self.tools, thinking=self.thinking)


def builder_of(version: Version) -> PromptBuilder:
    """The version's tokenizer and template. Raises ApiError when its files aren't on this machine."""
    try:
        return PromptBuilder.from_path(folder_of(version))
    except BlobMissing as error:
        raise overloaded(f"{version} can't be used: {error}", retry_after=30) from error


def chat_plan(*, body: ChatBody, caller: Caller) -> ReplyPlan:
    """Plan the replies to a conversation. Raises ApiError."""
    named = model_named(reference=body.model, caller=caller, kinds=("chat",))
    require_room(named.version)
    builder = builder_of(named.version)
    form = format_of(builder.template.source) if builder.template else None
    if form is None:
        raise bad_value("messages", f"{named.version} has no chat template; use /v1/completions.")
    tools = [] if body.tool_choice == "none" else _offered(body)
    prompt = _chat_prompt(body, builder, form, tools)
    thinking = form.thinks and _opens_thought(builder, prompt)
    sampling = _checked(body, builder) | _constraint(body, builder, form, tools, thinking=thinking)
    return ReplyPlan(named=named, builder=builder, prompts=[prompt], sampling=sampling, choices=body.choices, form=form,
                     tools=bool(tools), thinking=thinking)


def completion_plan(*, body: CompletionBody, caller: Caller) -> ReplyPlan:
    """Plan the texts that go on after a prompt. Raises ApiError."""
    named = model_named(reference=body.model, caller=caller, kinds=("chat",))
    require_room(named.version)
    builder = builder_of(named.version)
    prompts = [builder.text_ids(item) if isinstance(item, str) else item for item in prompt_list(body.prompt, "prompt")]
    for ids in prompts:
        if not ids:
            raise bad_value("prompt", "The prompt is empty.")
        require_ids(ids, vocabulary=builder.vocab_size, param="prompt")
    if len(prompts) * body.choices > MAX_PROMPTS:
        raise bad_value("prompt", f"At most {MAX_PROMPTS} replies are given to one request.")
    return ReplyPlan(named=named, builder=builder, prompts=prompts, sampling=_checked(body, builder),
                     choices=body.choices)


def prompt_list(given: str | list[str] | list[int] | list[list[int]], param: str) -> list[str | list[int]]:
    """One entry for each text, whichever of the four forms it came in. Raises ApiError when there is none."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise bad_value(param, f"{param!r} is empty.")
    if isinstance(given[0], int):
        return [given]
    return list(given)


def chat_prompt(*, body: Any, builder: PromptBuilder) -> list[int]:
    """The prompt's ids of a conversation that is only counted. Raises ApiError."""
    if builder.template is None:
        raise bad_value("messages", "This model has no chat template.")
    return _render(body, builder, format_of(builder.template.source), body.tools or [], {})


def _chat_prompt(body: ChatBody, builder: PromptBuilder, form: ToolFormat, tools: list[Tool]) -> list[int]:
    variables = body.chat_template_kwargs or {}
    if not all(isinstance(value, bool | int | float | str) for value in variables.values()):
        raise bad_value("chat_template_kwargs", "Its values are texts, numbers, true or false.")
    return _render(body, builder, form, tools, variables)


def _render(body: Any, builder: PromptBuilder, form: ToolFormat, tools: list[Tool],
            variables: dict[str, Any]) -> list[int]:
    try:
        return builder.chat_ids(template_messages(body.messages, form, tools),
                                tools=template_tools(tools) if tools and form.native else None, variables=variables)
    except TemplateError as error:
        raise bad_value("messages", f"The model's chat template can't take this conversation: {error}") from error


def _opens_thought(builder: PromptBuilder, prompt: list[int]) -> bool:
    end = builder.tokenizer.decode(prompt[-8:], skip_special_tokens=False)
    return end.rstrip().endswith(THOUGHT_BEGINS)


def _checked(body: SamplingBody, builder: PromptBuilder) -> dict[str, Any]:
    """The request's sampling. Raises ApiError for what only this model can't do."""
    found = body.sampling()
    require_ids([token_id for token_id, _ in found["logit_bias"]], vocabulary=builder.vocab_size, param="logit_bias")
    require_ids(list(found["stop_token_ids"]), vocabulary=builder.vocab_size, param="stop_token_ids")
    try:
        check_choices(body.choices, temperature=found["temperature"])
    except SpecError as error:
        raise bad_value(error.field, f"{error.field} {error.message}.") from None
    return found


def _offered(body: ChatBody) -> list[Tool]:
    """The tools that the model may call: a named one alone."""
    tools = body.tools or []
    if isinstance(body.tool_choice, NamedTool):
        return [tool for tool in tools if tool.function.name == body.tool_choice.function.name][:1]
    return tools


def _constraint(body: ChatBody, builder: PromptBuilder, form: ToolFormat, tools: list[Tool], *,
                thinking: bool) -> dict[str, Any]:
    """The sampling fields that keep the reply to its tools or its format. Raises ApiError."""
    special = _special(builder)
    param = "response_format"
    try:
        if tools:
            param = "tools"
            found: Constraint | None = _tool_constraint(body, form, tools, special, thinking=thinking)
        else:
            found = _format_constraint(body, form, special, thinking=thinking)
        if found is None:
            return {}
        check_constraint(found)
    except SpecError as error:
        raise bad_value(param, f"It can't be followed: {error.message}.", code="invalid_schema") from error
    if body.ignore_eos:
        raise bad_value("ignore_eos", f"It can't be set together with {param}, which decides where the reply may end.")
    shows = bool(tools) and bool(form.opener) and special(form.opener) is not None
    return {"constraint": found} | ({"skip_special_tokens": False} if shows else {})


def _tool_constraint(body: ChatBody, form: ToolFormat, tools: list[Tool], special: Any, *,
                     thinking: bool) -> Constraint:
    if isinstance(body.response_format, JsonObjectFormat | JsonSchemaFormat):
        raise ApiError(400, "response_format can't be set together with tools.", code="unsupported_parameter",
                       param="response_format")
    named = isinstance(body.tool_choice, NamedTool)
    wish = ToolWish(tools=[(tool.function.name, tool.function.parameters or ANY_ARGUMENTS) for tool in tools],
                    must_call=named or body.tool_choice == "required",
                    parallel=body.parallel_tool_calls is not False and not named)
    return reply_constraint(form, wish, special=special, thinking=thinking)


def _format_constraint(body: ChatBody, form: ToolFormat, special: Any, *, thinking: bool) -> Constraint | None:
    wished = body.response_format
    if not isinstance(wished, JsonObjectFormat | JsonSchemaFormat):
        return None
    schema = wished.json_schema.json_schema if isinstance(wished, JsonSchemaFormat) else None
    if thinking:
        return thought_constraint(schema, form, special=special)
    if schema is None:
        return Constraint(kind="json_object")
    return Constraint(kind="json_schema", text=json.dumps(schema))


def _special(builder: PromptBuilder) -> Any:
    """A function that gives the id of a control token, and None for what ordinary tokens can write."""
    def find(text: str) -> int | None:
        token_id = builder.tokenizer.token_id(text)
        return token_id if token_id in builder.tokenizer.special_ids else None

    return find
