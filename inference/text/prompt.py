"""Builds the token ids of a prompt from a conversation or a plain text, so that no message can forge control tokens."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inference.text.chat_template import ChatTemplate, TemplateError, read_chat_template
from inference.text.tokenizer import TextTokenizer

CACHED_BUILDERS = 8


class PromptBuilder:
    """A model's tokenizer and chat template together. Safe to use from several threads.

    A message may contain text such as <|im_end|>. Encoded as it stands, that would end the message and let its writer
    speak as the system. So control strings inside messages are marked before rendering, and the parts of the prompt
    that hold a mark are encoded as plain characters. A conversation without such strings gets the ids that
    transformers gives it.
    """

    def __init__(self, tokenizer: TextTokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.vocab_size = tokenizer.vocab_size
        strings = sorted((text for text in tokenizer.special_strings if len(text) > 1), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, strings))) if strings else None

    @classmethod
    def from_path(cls, path: Path) -> "PromptBuilder":
        """Return the builder of a model's folder or .gguf file; the last few stay loaded. Raises ArtifactError."""
        resolved = path.resolve()
        return _load(resolved, resolved.stat().st_mtime_ns if resolved.exists() else 0)

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None,
                 variables: Mapping[str, Any] | None = None) -> list[int]:
        """Return the prompt's ids, ready for the reply. Raises TemplateError.

        messages: {"role", "content"} each, and what the template reads besides, such as tool_calls. tools: functions
        that the model may call, in OpenAI's form. variables: of the template, such as enable_thinking.
        """
        if self.template is None:
            raise TemplateError("this model has no chat template")
        given = {"messages": messages, "tools": tools or None, "variables": variables or {}}
        if self._control is None or not any(self._control.search(text) for text in _texts(given)):
            # The template writes the start token itself where the model wants one: adding it again would double it.
            text = self.template.render(messages, tools=tools, variables=variables)
            return self.tokenizer.encode(text, add_special_tokens=False)
        mark = _unused_character(given)
        marked = self._marked(given, mark)
        text = self.template.render(marked["messages"], tools=marked["tools"], variables=marked["variables"])
        return self._encode_marked(text, mark)

    def text_ids(self, text: str) -> list[int]:
        """Return the ids of a plain text, with the start token where the tokenizer adds one; control strings count."""
        return self.tokenizer.encode(text, add_special_tokens=True)

    def _marked(self, value: Any, mark: str) -> Any:
        """Return a copy of messages or tools in which every control string has a mark inside."""
        if isinstance(value, str):
            return self._mark(value, mark)
        if isinstance(value, Mapping):
            return {self._mark(key, mark): self._marked(found, mark) for key, found in value.items()}
        if isinstance(value, list | tuple):
            return [self._marked(found, mark) for found in value]
        return value

    def _mark(self, text: str, mark: str) -> str:
        assert self._control is not None
        return self._control.sub(lambda found: found[0][0] + mark + found[0][1:], text)

    def _encode_marked(self, prompt: str, mark: str) -> list[int]:
        """Encode the stretches between control tokens: those with a mark as plain characters, the rest as usual."""
        assert self._control is not None
        ids: list[int] = []
        usual_from, position = 0, 0  # prompt[usual_from:position] is still to be encoded as usual
        for found in [*self._control.finditer(prompt), None]:
            end = len(prompt) if found is None else found.start()
            stretch = prompt[position:end]
            if mark in stretch:
                ids += self.tokenizer.encode(prompt[usual_from:position], add_special_tokens=False)
                ids += self.tokenizer.encode_plain(stretch.replace(mark, ""))
                usual_from = end
            position = end if found is None else found.end()
        return ids + self.tokenizer.encode(prompt[usual_from:], add_special_tokens=False)


@functools.lru_cache(maxsize=CACHED_BUILDERS)
def _load(path: Path, modified_ns: int) -> PromptBuilder:
    tokenizer = TextTokenizer.from_path(path)
    source = read_chat_template(path)
    return PromptBuilder(tokenizer, None if source is None else ChatTemplate(source, tokenizer.named_tokens))


def _texts(value: Any) -> Iterator[str]:
    """Every string in messages or tools, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, found in value.items():
            yield key
            yield from _texts(found)
    elif isinstance(value, list | tuple):
        for found in value:
            yield from _texts(found)


def _unused_character(given: Any) -> str:
    """Return a private-use character that no message contains."""
    used = set().union(*_texts(given))
    return next(char for code in range(0xF0000, 0xFFFFE) if (char := chr(code)) not in used)
