"""A jinja2 sandbox for chat templates from strangers: no access to Python, and bounds on time, numbers and sizes.

The immutable sandbox keeps a template from reaching Python; it doesn't keep it from running for ever or from building
a string of a gigabyte. So each loop iteration and call looks at a clock, and whatever multiplies a value's
size is measured before it is done.
"""

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SECONDS = 2.0
MAX_OUTPUT_CHARS = 8_000_000
MAX_VALUE_SIZE = 8_000_000  # characters of a string or elements of a list
MAX_NESTED_ITEMS = 300_000  # elements of a list and of the lists in it, as they would be written out
_WIDE = re.compile(r":[^{}]*(?:\{|\d{5})")  # {:>99999} or {:{width}}
MAX_NUMBER = 1_000_000  # no template has a use for padding, repetition or powers beyond this


class TemplateError(ValueError):
    """A chat template that refuses a conversation or fails on it. The message holds the template's own words."""


class GenerationTag(Extension):
    """Accepts {% generation %}…{% endgeneration %}, which marks replies for training; here it is just its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that transformers gives chat templates, with limits. One may serve several threads."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag],
                         finalize=self._measured, autoescape=False)
        self._budget = threading.local()
        for bomb in ("center", "wordwrap", "format", "pprint", "urlize", "random"):
            del self.filters[bomb]
        for name in ("join", "string", "list", "replace", "indent"):
            self.filters[name] = self._measuring(self.filters[name])
        self.filters["tojson"] = self._to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def start_clock(self) -> None:
        """Give this thread's next render its time."""
        self._budget.deadline = time.monotonic() + MAX_SECONDS

    def tick(self) -> bool:
        """Return True while there is time left. Raises TemplateError after that."""
        if time.monotonic() > self._budget.deadline:
            raise TemplateError(f"the chat template ran for more than {MAX_SECONDS:g} seconds")
        return True

    def joined(self, *values: Any) -> str:
        """Return the values as one string: the `~` of templates."""
        return "".join(str(self._measured(value)) for value in values)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.body.insert(0, nodes.ExprStmt(self._own_call("tick", [], loop.lineno), lineno=loop.lineno))
            if loop.test is not None:
                loop.test = nodes.And(self._own_call("tick", [], loop.lineno), loop.test, lineno=loop.lineno)
        _ConcatRewriter(self).visit(tree)
        tree.set_environment(self)
        return tree

    def _own_call(self, name: str, args: list[nodes.Expr], lineno: int) -> nodes.Call:
        """Return a call of this object's method, which a template can't shadow."""
        target = nodes.EnvironmentAttribute(name, lineno=lineno)
        return nodes.Call(target, args, [], None, None, lineno=lineno)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.tick()
        for value in (*args, *kwargs.values()):
            self._check_number(value)
        if getattr(obj, "__name__", "") == "replace":
            self._check_replacement(getattr(obj, "__self__", None), args)
        return self._measured(super().call(context, obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        text = getattr(value, "__self__", None)
        if isinstance(text, str) and getattr(value, "__name__", "") in ("format", "format_map") and _WIDE.search(text):
            raise TemplateError("the chat template formats with a width that is not allowed")
        return super().wrap_str_format(value)

    def call_filter(self, *args: Any, **kwargs: Any) -> Any:
        self.tick()
        return super().call_filter(*args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            raise TemplateError("the chat template formats with %, which is not allowed")
        if operator in ("*", "**"):
            self._check_number(left if isinstance(left, int) else 0)
            self._check_number(right if isinstance(right, int) else 0)
        if operator == "*" and (isinstance(left, (str, list, tuple)) or isinstance(right, (str, list, tuple))):
            self._check_size(_size(left) * _size(right))
        if operator == "**" and isinstance(right, int):
            self._check_number(right * 1000)
        if operator == "+" and isinstance(left, (str, list, tuple)):
            self._check_size(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)

    def _check_number(self, value: Any) -> None:
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise TemplateError(f"the chat template uses a number above {MAX_NUMBER:,}")

    def _check_size(self, size: int) -> None:
        if size > MAX_VALUE_SIZE:
            raise TemplateError(f"the chat template builds a value of more than {MAX_VALUE_SIZE:,} characters")

    def _check_replacement(self, text: Any, args: tuple[Any, ...]) -> None:
        if isinstance(text, str) and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
            self._check_size(len(text) + (text.count(args[0]) if len(args[1]) > len(args[0]) else 0) * len(args[1]))

    def _measured(self, value: Any) -> Any:
        """Return value if it is small enough to be written out; nested lists are counted without recursion."""
        characters, items, pending = 0, 0, [value]
        while pending:
            item = pending.pop()
            if isinstance(item, (list, tuple, set)):
                items += len(item)
                pending.extend(item)
            elif isinstance(item, dict):
                items += len(item)
                pending.extend(item.values())
            elif isinstance(item, str):
                characters += len(item)
            self._check_size(characters)
            if items > MAX_NESTED_ITEMS:
                raise TemplateError(f"the chat template builds a list of more than {MAX_NESTED_ITEMS:,} elements")
        return value

    def _measuring(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a filter so that its input and arguments are measured, and their product where it multiplies."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            for value in (*args, *kwargs.values()):
                self._check_number(value)
                self._measured(value)
            texts = [value for value in args if isinstance(value, str)]
            if function.__name__ == "do_replace" and len(texts) >= 3:
                self._check_replacement(texts[0], tuple(texts[1:]))
            return self._measured(function(*args, **kwargs))

        return functools.update_wrapper(measured, function)  # with jinja2's mark of what the filter is passed first

    def _to_json(self, value: Any, ensure_ascii: bool = False, indent: int | None = None,
                 separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
        self._measured(value)
        if indent is not None and indent > 16:
            raise TemplateError("the chat template indents JSON by more than 16")
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _ConcatRewriter(jinja2.visitor.NodeTransformer):
    """Turns `a ~ b` into a call of the sandbox, which measures it."""

    def __init__(self, environment: TemplateSandbox) -> None:
        self.environment = environment

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - the name jinja2 looks for
        self.generic_visit(node)
        return self.environment._own_call("joined", node.nodes, node.lineno)


def _size(value: Any) -> int:
    if isinstance(value, (str, list, tuple)):
        return len(value)
    return abs(value) if isinstance(value, int) else 1


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return time.strftime(form)


def bounded(pieces: Iterable[str]) -> str:
    """Join what a template writes. Raises TemplateError once it is too much."""
    parts, total = [], 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_OUTPUT_CHARS:
            raise TemplateError(f"the chat template writes more than {MAX_OUTPUT_CHARS:,} characters")
        parts.append(piece)
    return "".join(parts)
