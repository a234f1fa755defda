"""Checks on the chat template: that it reaches for nothing, ends in time and renders plain conversations."""

import re
from collections.abc import Iterator

from jinja2 import nodes

from inference.artifacts.errors import ArtifactError
from inference.text.chat_template import ChatTemplate, TemplateError, read_chat_template
from inference.text.template_sandbox import TemplateSandbox
from registry.checks.subject import Subject

FILE = "chat template"
PLAIN = (
    [{"role": "user", "content": "Hello"}],
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}],
)
WITH_SYSTEM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
CONTROL = re.compile(r"<\|[\w.-]{1,40}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>")


def check_template(subject: Subject) -> str:
    """The template compiles, reads no Python, and renders sample chats. A model may do without one."""
    source = read_chat_template(subject.folder)
    if source is None:
        subject.warn(FILE, "there is none: the model can complete plain text, but conversations can't be put to it")
        return "none"
    template = ChatTemplate(source, subject.tokenizer.named_tokens)
    if names := sorted(set(_python_names(source))):
        raise ArtifactError(FILE, f"reads Python's own {names[0]!r}, which no chat template needs")
    rendered = ""
    for messages in PLAIN:
        try:
            rendered = template.render(messages)
        except TemplateError as error:
            raise ArtifactError(FILE, f"fails on a plain chat: {error}") from None
    if "Bye" not in rendered:
        subject.warn(FILE, "leaves the last message of a plain chat out")
    try:
        template.render(WITH_SYSTEM)
    except TemplateError as error:
        subject.warn(FILE, f"takes no system message: {error}")
    unknown = sorted({token for token in CONTROL.findall(rendered) if subject.tokenizer.token_id(token) is None})
    if unknown:
        subject.warn(FILE, f"writes {unknown[0]!r}, which is not one token of this model's tokenizer")
    return f"{len(source):,} characters, renders plain chats"


def _python_names(source: str) -> Iterator[str]:
    """Yield the names with two underscores that a template reads as an attribute, an item or through a filter."""
    tree = TemplateSandbox().parse(source)
    for attribute in tree.find_all(nodes.Getattr):
        if attribute.attr.startswith("__"):
            yield attribute.attr
    for constant in tree.find_all(nodes.Const):
        if isinstance(constant.value, str) and re.fullmatch(r"__\w+__", constant.value):
            yield constant.value
