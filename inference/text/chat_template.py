"""Renders a conversation to a model's prompt text with the chat template that the model came with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from inference.artifacts.gguf import GgufFile
from inference.artifacts.jsonfile import read_object_if_present
from inference.text.gguf_tokenizer import chat_template_from_gguf
from inference.text.template_sandbox import TemplateError, TemplateSandbox, bounded
from inference.text.tokenizer import TextTokenizer

__all__ = ["ChatTemplate", "TemplateError", "read_chat_template"]

MAX_TEMPLATE_CHARS = 1_000_000


def read_chat_template(path: Path) -> str | None:
    """Return the template's source in a folder (chat_template.jinja, tokenizer_config.json, a .gguf file) or .gguf.

    None when the model has no chat template. Raises ArtifactError for files that can't be read.
    """
    if path.is_file():
        return chat_template_from_gguf(GgufFile(path))
    if (own := path / "chat_template.jinja").is_file():
        return own.read_text(encoding="utf-8", errors="replace")
    template: Any = read_object_if_present(path / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):  # several named ones; transformers takes the one called default
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if isinstance(template, str) and template:
        return template
    ggufs = sorted(path.glob("*.gguf"))
    return chat_template_from_gguf(GgufFile(ggufs[0])) if len(ggufs) == 1 else None


class ChatTemplate:
    """A compiled chat template. Raises TemplateError when the source can't be compiled."""

    def __init__(self, source: str, named_tokens: dict[str, str]) -> None:
        self.source = source
        self._named_tokens = named_tokens
        self._sandbox = TemplateSandbox()
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateError(f"the chat template is longer than {MAX_TEMPLATE_CHARS:,} characters")
        try:
            self._template = self._sandbox.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"line {error.lineno} of the chat template: {error.message}") from None
        except (RecursionError, MemoryError, OverflowError, SyntaxError) as error:
            raise TemplateError(f"the chat template can't be compiled ({type(error).__name__})") from None

    @classmethod
    def from_path(cls, path: Path) -> "ChatTemplate":
        """Load the template of a model's folder or .gguf file. Raises TemplateError when it has none."""
        source = read_chat_template(path)
        if source is None:
            raise TemplateError("this model has no chat template")
        return cls(source, TextTokenizer.from_path(path).named_tokens)

    def render(self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None,
               variables: Mapping[str, Any] | None = None, add_generation_prompt: bool = True) -> str:
        """Return the prompt text. messages: {"role", "content"} each. Raises TemplateError, in the template's words.

        tools: functions that the model may call. variables: others of the template; they can't replace these.
        """
        self._sandbox.start_clock()
        given = {**(variables or {}), **self._named_tokens, "messages": [dict(message) for message in messages],
                 "tools": [dict(tool) for tool in tools] if tools else None, "documents": None,
                 "add_generation_prompt": add_generation_prompt}
        try:
            return bounded(self._template.generate(given))
        except TemplateError:
            raise
        except jinja2.TemplateError as error:
            raise TemplateError(error.message or type(error).__name__) from None
        except Exception as error:
            raise TemplateError(f"the chat template failed ({type(error).__name__}: {error})") from None
