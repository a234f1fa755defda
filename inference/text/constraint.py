"""Turns a constraint on a reply's text into a grammar, and refuses one that can't be compiled, without torch.

The grammar library is llguidance: its compiler and its matchers work under limits on memory and steps, so that a small
text can't make them take long.
"""

import json
from typing import Any

from llguidance import LLMatcher, LLParserLimits
from llguidance.gbnf_to_lark import any_to_lark

from inference.spec import Constraint, SpecError

FIELD = "constraint"
MAX_CHOICES = 1000
MAX_REASON_CHARS = 500

LIMITS = LLParserLimits(
    max_grammar_size=100_000,  # symbols
    initial_lexer_fuel=200_000,  # states' work while compiling, about 0.1 s
    step_lexer_fuel=200_000,  # the same for the mask of one token
    max_lexer_states=50_000,
    step_max_items=50_000,
    verbose_errors=False,
)
"""What compiling and one step of matching may take. A reply whose matcher reaches a limit fails alone."""

_JSON_OPTIONS: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# One way to write each document: with free white space a reply could go on with nothing but blanks.


def grammar_of(constraint: Constraint) -> str:
    """Return the constraint as a grammar for llguidance's matcher, not compiled yet. Raises SpecError."""
    try:
        return _grammar(constraint)
    except RecursionError:
        raise SpecError(FIELD, f"the {constraint.kind} is nested too deep") from None
    except ValueError as error:
        raise SpecError(FIELD, f"the {constraint.kind} can't be read: {_short(error)}") from None

def check_constraint(constraint: Constraint) -> None:
    """Refuse what can't be compiled, for callers without the model's tokenizer. Raises SpecError with the reason."""
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar_of(constraint), limits=LIMITS)
    if failed:
        raise refusal(constraint, messages[0])


def refusal(constraint: Constraint, reason: str) -> SpecError:
    """The error for a constraint that the grammar library doesn't compile."""
    return SpecError(FIELD, f"the {constraint.kind} can't be used: {_short(reason)}")


def _grammar(constraint: Constraint) -> str:
    text = constraint.text.encode("utf-8", "replace").decode()
    if constraint.kind == "json_schema":
        return _from_schema(json.loads(text))
    if constraint.kind == "json_object":
        return _from_schema({"type": "object"})
    if constraint.kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    if constraint.kind == "choice":
        return LLMatcher.grammar_from_lark(_from_choices(json.loads(text)))
    return LLMatcher.grammar_from_lark(_to_lark(text))


def _to_lark(text: str) -> str:
    try:
        lark: str = any_to_lark(text)
    except RecursionError:
        raise
    except Exception as error:  # the library's converter has no narrower one for what is wrong with a grammar
        raise ValueError(error) from None
    return lark


def _from_schema(schema: object) -> str:
    if not isinstance(schema, dict):
        raise ValueError("it is not a JSON object")
    return LLMatcher.grammar_from_json_schema(schema, overrides=_JSON_OPTIONS)


def _from_choices(choices: object) -> str:
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice for choice in choices):
        raise ValueError("it is not a JSON list of strings, none of them empty")
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise ValueError(f"it has {len(choices):,} strings, and 1 to {MAX_CHOICES:,} are taken")
    return "start: " + " | ".join(map(json.dumps, choices))


def _short(reason: object) -> str:
    text = " ".join(str(reason).split())
    return text if len(text) <= MAX_REASON_CHARS else text[:MAX_REASON_CHARS] + "…"
