"""Reads a reply as it comes: thoughts, text for people and tool calls, each as soon as it is certain what it is."""

import json
from dataclasses import dataclass
from typing import Literal

from inference.text.tool_calls.formats import THOUGHT_BEGINS, THOUGHT_ENDS, ToolFormat

PYTHON_TAG = "<|python_tag|>"
CALL_ENDS = "</tool_call>"


@dataclass(frozen=True)
class Piece:
    """Text of a thought or of the answer."""

    kind: Literal["reasoning", "content"]
    text: str


@dataclass(frozen=True)
class Call:
    """A whole tool call. arguments: JSON, an object."""

    name: str
    arguments: str


class ReplyReader:
    """Feed it the reply's text in pieces of any size; the parts come out in order, and `finish` gives what is left.

    form: None for a request without tools and a model without thoughts. tools: whether calls are looked for. thinking:
    the prompt has opened a thought. What looks like a call and can't be read is text.
    """

    def __init__(self, form: ToolFormat | None, *, tools: bool, thinking: bool = False) -> None:
        thinks = form is not None and form.thinks
        self._state: Literal["start", "thought", "answer"] = (
            "thought" if thinking and thinks else "start" if thinks else "answer")
        self._calls = _call_reader(form) if form is not None and tools else None
        self._held = ""
        self._space = ""
        self._trims = thinks  # line ends at the beginning of a thought, and of the answer after it, are notation

    def feed(self, text: str) -> list[Piece | Call]:
        """Take more text; return what is certain now."""
        self._held += text
        parts: list[Piece | Call] = []
        if self._state == "start":
            self._open()
        if self._state == "thought":
            parts += self._think()
        if self._state == "answer" and self._held:
            text, self._held = self._trimmed(), ""
            parts += self._answer(text) if text else []
        return parts

    def _trimmed(self) -> str:
        """What is held, without the line ends at its beginning while there was nothing else."""
        text = self._held.lstrip("\n") if self._trims else self._held
        self._trims = self._trims and not text
        return text

    def finish(self) -> list[Piece | Call]:
        """The reply is over: return what was held back."""
        parts: list[Piece | Call] = []
        if self._state == "thought":
            rest = self._held.rstrip("\n")
            return [Piece("reasoning", rest)] if rest else []
        if self._held:
            text, self._held = self._held, ""
            parts += self._answer(text)
        if self._calls is not None:
            parts += self._spaced(self._calls.finish())
        return parts

    def _open(self) -> None:
        """Decide whether the reply begins with a thought."""
        begun = self._held.lstrip()
        if begun.startswith(THOUGHT_BEGINS):
            self._held, self._state = begun[len(THOUGHT_BEGINS):], "thought"
        elif not THOUGHT_BEGINS.startswith(begun):
            self._state, self._trims = "answer", False

    def _think(self) -> list[Piece | Call]:
        self._held = self._trimmed()
        thought, end, rest = self._held.partition(THOUGHT_ENDS)
        if end:
            self._held, self._state, self._trims = rest, "answer", True
            thought = thought.rstrip("\n")
        else:
            sure = thought[:len(thought) - _overlap(thought, THOUGHT_ENDS)].rstrip("\n")
            thought, self._held = sure, thought[len(sure):]
        return [Piece("reasoning", thought)] if thought else []

    def _answer(self, text: str) -> list[Piece | Call]:
        if self._calls is None:
            return [Piece("content", text)]
        return self._spaced(self._calls.feed(text))

    def _spaced(self, parts: "list[Piece | Call]") -> list[Piece | Call]:
        """Leave out white space around calls: it belongs to their notation."""
        found: list[Piece | Call] = []
        for part in parts:
            if isinstance(part, Call):
                self._space = ""
                found.append(part)
            elif part.text.strip():
                body = self._space + part.text
                kept = body.rstrip()
                self._space = body[len(kept):]
                found.append(Piece("content", kept))
            else:
                self._space += part.text
        return found


class _Tagged:
    """Hermes and Qwen: <tool_call>{…}</tool_call>, anywhere in the text."""

    def __init__(self, form: ToolFormat) -> None:
        self._form = form
        self._held = ""
        self._inside = False

    def feed(self, text: str) -> list[Piece | Call]:
        self._held += text
        parts: list[Piece | Call] = []
        while True:
            marker = CALL_ENDS if self._inside else self._form.opener
            before, found, rest = self._held.partition(marker)
            if not found:
                break
            self._held = rest
            parts += _call_or_text(before, self._form, raw=f"{self._form.opener}{before}{CALL_ENDS}") \
                if self._inside else _text(before)
            self._inside = not self._inside
        if not self._inside:
            keep = _overlap(self._held, self._form.opener)
            ready, self._held = self._held[:len(self._held) - keep], self._held[len(self._held) - keep:]
            parts += _text(ready)
        return parts

    def finish(self) -> list[Piece | Call]:
        text, self._held = self._held, ""
        return _call_or_text(text, self._form, raw=self._form.opener + text) if self._inside else _text(text)


class _Whole:
    """Llama 3: the reply is one call or several with `;` between, or else text."""

    def __init__(self, form: ToolFormat) -> None:
        self._form = form
        self._held = ""
        self._is_text = False

    def feed(self, text: str) -> list[Piece | Call]:
        if self._is_text:
            return _text(text)
        self._held += text
        begun = self._held.lstrip()
        if not begun or PYTHON_TAG.startswith(begun) or begun.startswith(("{", PYTHON_TAG)):
            return []
        self._is_text, self._held = True, ""
        return _text(begun)

    def finish(self) -> list[Piece | Call]:
        text = self._held.strip().removeprefix(PYTHON_TAG)
        calls = _sequence(text, self._form.arguments_key, between="; \n")
        return calls if calls is not None else _text(self._held)


class _Listed:
    """Mistral: [TOOL_CALLS] and a JSON list of calls, or for each call [TOOL_CALLS]name[ARGS]{…}."""

    def __init__(self, form: ToolFormat) -> None:
        self._form = form
        self._held = ""
        self._opened = False

    def feed(self, text: str) -> list[Piece | Call]:
        self._held += text
        if self._opened:
            return []
        before, found, rest = self._held.partition(self._form.opener)
        if found:
            self._opened, self._held = True, rest
            return _text(before)
        keep = _overlap(self._held, self._form.opener)
        ready, self._held = self._held[:len(self._held) - keep], self._held[len(self._held) - keep:]
        return _text(ready)

    def finish(self) -> list[Piece | Call]:
        if not self._opened:
            return _text(self._held)
        calls = self._named() if self._form.family == "mistral_args" else self._list()
        return calls if calls else _text(self._form.opener + self._held)

    def _list(self) -> list[Piece | Call] | None:
        text = self._held.strip()
        if not text.startswith("["):
            return None
        return _sequence(text[1:].rstrip().removesuffix("]"), self._form.arguments_key, between=", \n")

    def _named(self) -> list[Piece | Call] | None:
        parts: list[Piece | Call] = []
        for text in self._held.split(self._form.opener):
            name, found, arguments = text.partition("[ARGS]")
            if not found or not _is_object(arguments):
                return None
            parts.append(Call(name.strip(), arguments.strip()))
        return parts


_Reader = _Tagged | _Whole | _Listed


def _call_reader(form: ToolFormat) -> _Reader:
    if form.family == "hermes":
        return _Tagged(form)
    return _Whole(form) if form.family == "llama3" else _Listed(form)


def _text(text: str) -> list[Piece | Call]:
    return [Piece("content", text)] if text else []


def _call_or_text(text: str, form: ToolFormat, *, raw: str) -> list[Piece | Call]:
    calls = _sequence(text.strip(), form.arguments_key, between="\n ")
    return calls if calls else _text(raw)


def _sequence(text: str, key: str, *, between: str) -> list[Piece | Call] | None:
    """Read JSON objects with a name one after the other; None when there is anything else."""
    decoder, position = json.JSONDecoder(), 0
    calls: list[Piece | Call] = []
    while position < len(text):
        try:
            found, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        call = _call(found, key)
        if call is None:
            return None
        calls.append(call)
        position = end
        while position < len(text) and text[position] in between:
            position += 1
    return calls or None


def _call(found: object, key: str) -> Call | None:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get(key, found.get("arguments", found.get("parameters", {})))
    if not isinstance(arguments, dict):
        return None
    return Call(found["name"], json.dumps(arguments, ensure_ascii=False))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _overlap(text: str, marker: str) -> int:
    """How many characters at the end of text may be the beginning of the marker."""
    for size in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0
