"""Tool calls in text: written by three families of models, read back however the text is cut, and held to grammars.

The replies are in the forms of the models' own documentation: Hermes 2 Pro and Qwen (model cards), Llama 3.1 (Meta's
prompt format page), Mistral (mistral-common's tests of tokenizer v3 and v11).
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from inference.spec import SpecError
from inference.text.constraint import LIMITS, check_constraint, grammar_of
from inference.text.tool_calls import Call, Piece, ReplyReader, ToolFormat, ToolWish, format_of, reply_constraint
from inference.text.tool_calls.grammar import thought_constraint
from tests.tiny_models import tiny_tokenizer

HERMES = format_of("{%- if tools %}<tools>{{ tools }}</tools><tool_call>{% endif %}")
QWEN3 = format_of("{%- if tools %}<tool_call>{% endif %}{{ content.split('</think>')[-1] }}")
LLAMA3 = format_of('{%- if tools %}{"name": function name, "parameters": dictionary}{% endif %}<|python_tag|>')
MISTRAL = format_of("{%- if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS][")
MISTRAL_11 = format_of("{%- if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]{{ name }}[ARGS]")
PLAIN = format_of("{% for message in messages %}{{ message.content }}{% endfor %}")
PARIS = Call("get_weather", '{"city": "Paris"}')
ROME = Call("get_weather", '{"city": "Rome"}')

REPLIES: list[tuple[str, ToolFormat, str, list[Piece | Call]]] = [
    ("hermes, one call", HERMES, '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
     [PARIS]),
    ("hermes, text and two calls", HERMES,
     'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n<tool_call>\n'
     '{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
     [Piece("content", "Let me look."), PARIS, ROME]),
    ("hermes, arguments first", HERMES,
     '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', [PARIS]),
    ("hermes, only text", HERMES, "I <b>can't</b> do <tool things.",
     [Piece("content", "I <b>can't</b> do <tool things.")]),
    ("hermes, no JSON", HERMES, "<tool_call>\nnonsense\n</tool_call>",
     [Piece("content", "<tool_call>\nnonsense\n</tool_call>")]),
    ("hermes, cut off", HERMES, '<tool_call>\n{"name": "get_wea', [Piece("content", '<tool_call>\n{"name": "get_wea')]),
    ("qwen, thought and call", QWEN3,
     '<think>\nWeather, so a tool.\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
     "</tool_call>", [Piece("reasoning", "Weather, so a tool."), PARIS]),
    ("llama, one call", LLAMA3, '{"name": "get_weather", "parameters": {"city": "Paris"}}', [PARIS]),
    ("llama, two calls behind the tag", LLAMA3,
     '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "get_weather", "parameters": '
     '{"city": "Rome"}}', [PARIS, ROME]),
    ("llama, text", LLAMA3, "It is {sunny} in Paris.", [Piece("content", "It is {sunny} in Paris.")]),
    ("llama, JSON that is no call", LLAMA3, '{"answer": 5}', [Piece("content", '{"answer": 5}')]),
    ("mistral, two calls", MISTRAL,
     '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "VvvODy9mT"}, '
     '{"name": "get_weather", "arguments": {"city": "Rome"}}]', [PARIS, ROME]),
    ("mistral, text", MISTRAL, "It is [sunny].", [Piece("content", "It is [sunny].")]),
    ("mistral 11, two calls", MISTRAL_11,
     '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}', [PARIS, ROME]),
    ("mistral 11, no object", MISTRAL_11, "[TOOL_CALLS]get_weather[ARGS]5",
     [Piece("content", "[TOOL_CALLS]get_weather[ARGS]5")]),
]


def read(form: ToolFormat | None, pieces: list[str], *, tools: bool = True,
         thinking: bool = False) -> list[Piece | Call]:
    """Feed the pieces and join what comes out of the same kind."""
    reader = ReplyReader(form, tools=tools, thinking=thinking)
    found: list[Piece | Call] = []
    for part in [*(part for piece in pieces for part in reader.feed(piece)), *reader.finish()]:
        last = found[-1] if found else None
        if isinstance(part, Piece) and isinstance(last, Piece) and part.kind == last.kind:
            found[-1] = Piece(part.kind, last.text + part.text)
        else:
            found.append(part)
    return found


@pytest.mark.parametrize(("form", "text", "expected"), [row[1:] for row in REPLIES], ids=[row[0] for row in REPLIES])
def test_a_reply_is_read_the_same_however_it_is_cut(form: ToolFormat, text: str, expected: list[Piece | Call]) -> None:
    assert read(form, [text]) == expected
    assert read(form, list(text)) == expected
    for size in (2, 3, 7):
        assert read(form, [text[start:start + size] for start in range(0, len(text), size)]) == expected


@given(st.text(alphabet="<>tool_cal/{}[]think \nTOOLCS;", max_size=60), st.integers(1, 5))
def test_no_text_is_lost_whatever_it_looks_like(text: str, size: int) -> None:
    for form in (HERMES, LLAMA3, MISTRAL):
        parts = read(form, [text[start:start + size] for start in range(0, len(text), size)])
        assert read(form, [text]) == parts
        if not any(isinstance(part, Call) for part in parts):
            assert "".join(part.text for part in parts if isinstance(part, Piece)) == text.rstrip() \
                or not text.strip() or form is LLAMA3


@pytest.mark.parametrize(("text", "thinking", "expected"), [
    ("<think>\nHm.\n</think>\n\nYes.", False, [Piece("reasoning", "Hm."), Piece("content", "Yes.")]),
    ("Hm.\n</think>\n\nYes.", True, [Piece("reasoning", "Hm."), Piece("content", "Yes.")]),
    ("Yes, <think> is a tag.", False, [Piece("content", "Yes, <think> is a tag.")]),
    ("Hm, cut", True, [Piece("reasoning", "Hm, cut")]),
])
def test_thoughts_are_told_apart_with_and_without_tools(text: str, thinking: bool, expected: list[Any]) -> None:
    for tools in (False, True):
        assert read(QWEN3, [text], tools=tools, thinking=thinking) == expected
        assert read(QWEN3, list(text), tools=tools, thinking=thinking) == expected


def test_without_tools_and_thoughts_text_stays_as_it_is() -> None:
    text = '<tool_call>{"name": "x"}</tool_call> '
    assert read(HERMES, [text], tools=False) == read(None, [text]) == [Piece("content", text)]


def test_a_template_without_tools_gets_hermes_notation() -> None:
    assert (PLAIN.family, PLAIN.native) == ("hermes", False)
    assert [form.family for form in (HERMES, QWEN3, LLAMA3, MISTRAL, MISTRAL_11)] == [
        "hermes", "hermes", "llama3", "mistral", "mistral_args"]
    assert [form.thinks for form in (HERMES, QWEN3)] == [False, True]


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
          "additionalProperties": False}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
WISH = {"tools": [("get_weather", SCHEMA), ("now", NOTHING)]}


class Grammar:
    """The constraint on a tokenizer whose ordinary tokens are bytes."""

    def __init__(self, form: ToolFormat, **more: Any) -> None:
        constraint = reply_constraint(form, ToolWish(**WISH, **more), special=lambda text: None)
        check_constraint(constraint)
        self._tokenizer = tiny_tokenizer()
        tokens = LLTokenizer(self._tokenizer.to_str(), eos_token=[2])
        self._matcher = LLMatcher(tokens, grammar_of(constraint), log_level=0, limits=LIMITS)

    def takes(self, text: str) -> bool:
        """Whether the whole text is a reply that may end there."""
        matcher = self._matcher.deep_copy()
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return matcher.try_consume_tokens(ids) == len(ids) and bool(matcher.is_accepting())


@pytest.mark.parametrize("form", [HERMES, LLAMA3, MISTRAL, MISTRAL_11], ids=lambda form: form.family)
def test_grammars_take_what_is_read_as_calls_and_nothing_that_does_not_parse(form: ToolFormat) -> None:
    opening = {"hermes": "<tool_call>\n", "llama3": "", "mistral": "[TOOL_CALLS] [", "mistral_args": "[TOOL_CALLS]"}
    closing = {"hermes": "\n</tool_call>", "llama3": "", "mistral": "]", "mistral_args": ""}

    def call(name: str, arguments: str) -> str:
        if form.family == "mistral_args":
            return f"{name}[ARGS]{arguments}"
        return f'{{"name": "{name}", "{form.arguments_key}": {arguments}}}'

    def reply(*calls: str) -> str:
        between = {"hermes": "\n</tool_call>\n<tool_call>\n", "llama3": "; ", "mistral": ", ",
                   "mistral_args": "[TOOL_CALLS]"}[form.family]
        return opening[form.family] + between.join(calls) + closing[form.family]

    good, bad = call("get_weather", '{"city": "Paris"}'), call("get_weather", '{"town": "Paris"}')
    must, may, one = Grammar(form, must_call=True), Grammar(form), Grammar(form, must_call=True, parallel=False)
    for grammar in (must, may, one):
        assert grammar.takes(reply(good)) and not grammar.takes(reply(bad))
        assert not grammar.takes(reply(call("launch", "{}"))) or (grammar is may and form.family != "llama3")
    assert must.takes(reply(good, call("now", "{}"))) and may.takes(reply(good, call("now", "{}")))
    assert not one.takes(reply(good, good))
    assert may.takes("It is sunny.") and not must.takes("It is sunny.")
    assert read(form, [reply(good, call("now", "{}"))]) == [PARIS, Call("now", "{}")]


def test_a_thought_comes_before_calls_and_before_json() -> None:
    reply = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    grammar = Grammar(QWEN3, must_call=True)
    assert grammar.takes(reply) and grammar.takes(f"<think>\nHm {{}}.\n</think>\n\n{reply}")
    constraint = thought_constraint(SCHEMA, QWEN3, special=lambda text: None)
    check_constraint(constraint)
    assert "thought_end" in constraint.text and json.dumps("</think>") in constraint.text


def test_a_bad_schema_is_refused_in_words() -> None:
    wish = ToolWish(tools=[("f", {"type": "nonsense"})])
    with pytest.raises(SpecError, match="nonsense"):
        check_constraint(reply_constraint(HERMES, wish, special=lambda text: None))


def test_control_tokens_are_named_by_id() -> None:
    text = reply_constraint(MISTRAL, ToolWish(**WISH), special={"[TOOL_CALLS]": 5}.get).text
    assert "<[5]>" in text and '"[TOOL_CALLS]"' not in text
