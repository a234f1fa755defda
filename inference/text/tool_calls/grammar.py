"""Grammars for replies that may or must call tools, so that whatever is called has a name and arguments that fit."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inference.spec import Constraint
from inference.text.tool_calls.formats import THOUGHT_BEGINS, THOUGHT_ENDS, ToolFormat

MAX_CALLS = 16
_WRITTEN: dict[str, Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

TokenId = Callable[[str], int | None]
"""Returns the id of a control token, or None for what is written with ordinary ones."""


@dataclass(frozen=True, kw_only=True)
class ToolWish:
    """What a request asks for. tools: (name, JSON schema of its arguments). must_call: free text alone won't do."""

    tools: Sequence[tuple[str, dict[str, Any]]]
    must_call: bool = False
    parallel: bool = True


def reply_constraint(form: ToolFormat, wish: ToolWish, *, special: TokenId, thinking: bool = False) -> Constraint:
    """The constraint on a reply with tools. thinking: the prompt has opened a thought. Raises inference.spec.SpecError.

    special: finds control tokens, which no ordinary text of a grammar can match.
    """
    rules = _RULES[form.family](wish, special)
    return Constraint(kind="grammar", text=_with_thought(rules, form, thinking=thinking, special=special))


def thought_constraint(schema: dict[str, Any] | None, form: ToolFormat, *, special: TokenId) -> Constraint:
    """JSON of that schema (None: any object) after the thought that the prompt has opened."""
    rules = f"reply: {_json(schema or {'type': 'object'})}\n"
    return Constraint(kind="grammar", text=_with_thought(rules, form, thinking=True, special=special))


def _with_thought(rules: str, form: ToolFormat, *, thinking: bool, special: TokenId) -> str:
    """Let a model that thinks do so first; `reply` is the rule for what comes after."""
    head = "%llguidance {}\n"
    text = "TEXT: /(.|\\n)*/\n"
    if not form.thinks:
        return f"{head}start: reply\n{text}{rules}"
    ends = _until(THOUGHT_ENDS, special, name="thought_end")
    if thinking:
        return f"{head}start: thought_end /\\n*/ reply\n{text}{ends}{rules}"
    begins = _literal(THOUGHT_BEGINS, special)
    return f"{head}start: reply | {begins} thought_end /\\n*/ reply\n{text}{ends}{rules}"


def _hermes(wish: ToolWish, special: TokenId) -> str:
    """<tool_call>\\n{"name": …, "arguments": …}\\n</tool_call>, one for each call."""
    begin, end = _literal("<tool_call>", special), _literal("</tool_call>", special)
    body = f'"\\n" call "\\n" {end}'
    rules = _calls(wish.tools, "arguments")
    if wish.must_call:
        more = f' ("\\n" {begin} {body}){{0,{MAX_CALLS - 1}}}' if wish.parallel else ""
        return f"reply: {begin} {body}{more}\n{rules}"
    first = _until("<tool_call>", special, name="opened")
    more = f'("\\n" {begin} {body}){{0,{MAX_CALLS - 1}}}' if wish.parallel else ""
    return f"reply: TEXT | opened {body} {more}\n{first}{rules}"


def _llama3(wish: ToolWish, special: TokenId) -> str:
    """{"name": …, "parameters": …} as the whole reply; several with `; ` between, as vLLM's parser reads them."""
    more = f' ("; " call){{0,{MAX_CALLS - 1}}}' if wish.parallel else ""
    called = f"call{more}"
    if special("<|python_tag|>") is not None:
        called = f"({called} | {_literal('<|python_tag|>', special)} {called})"
    rules = _calls(wish.tools, "parameters")
    if wish.must_call:
        return f"reply: {called}\n{rules}"
    return f"reply: PLAIN | {called}\nPLAIN: /([^{{](.|\\n)*)?/\n{rules}"


def _mistral(wish: ToolWish, special: TokenId) -> str:
    """[TOOL_CALLS] [{"name": …, "arguments": …}, …]."""
    more = f' (", " call){{0,{MAX_CALLS - 1}}}' if wish.parallel else ""
    body = f'" "? "[" call{more} "]"'
    return _after_opener(body, wish, special) + _calls(wish.tools, "arguments")


def _mistral_args(wish: ToolWish, special: TokenId) -> str:
    """[TOOL_CALLS]name[ARGS]{…}, one for each call."""
    opener, args = _literal("[TOOL_CALLS]", special), _literal("[ARGS]", special)
    more = f" ({opener} called){{0,{MAX_CALLS - 1}}}" if wish.parallel else ""
    rules = "called: " + " | ".join(f"tool_{number}" for number in range(len(wish.tools))) + "\n"
    for number, (name, schema) in enumerate(wish.tools):
        rules += f"tool_{number}: {json.dumps(name)} {args} {_json(schema)}\n"
    return _after_opener(f"called{more}", wish, special) + rules


def _after_opener(body: str, wish: ToolWish, special: TokenId) -> str:
    opener = "[TOOL_CALLS]"
    if wish.must_call:
        return f"reply: {_literal(opener, special)} {body}\n"
    return f"reply: TEXT | opened {body}\n{_until(opener, special, name='opened')}"


_RULES: dict[str, Callable[[ToolWish, TokenId], str]] = {
    "hermes": _hermes, "llama3": _llama3, "mistral": _mistral, "mistral_args": _mistral_args}


def _calls(tools: Sequence[tuple[str, dict[str, Any]]], key: str) -> str:
    """The rule `call`: {"name": …, key: …} for one of the tools."""
    rules = "call: " + " | ".join(f"tool_{number}" for number in range(len(tools))) + "\n"
    for number, (name, schema) in enumerate(tools):
        begin = json.dumps(f'{{"name": {json.dumps(name)}, "{key}": ')
        rules += f'tool_{number}: {begin} {_json(schema)} "}}"\n'
    return rules


def _json(schema: dict[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": _WRITTEN})


def _literal(text: str, special: TokenId) -> str:
    """How a grammar writes a marker: by id where it is a control token, else as its characters."""
    token_id = special(text)
    return json.dumps(text) if token_id is None else f"<[{token_id}]>"


def _until(marker: str, special: TokenId, *, name: str) -> str:
    """A rule for any text up to the first marker, the marker included."""
    token_id = special(marker)
    if token_id is None:
        return f"{name}[lazy]: /(.|\\n)*/ {json.dumps(marker)}\n"
    return f"{name}: TEXT <[{token_id}]>\n"
