"""The ways in which families of models write tool calls, told apart by what their chat templates contain."""

from dataclasses import dataclass
from typing import Literal

Family = Literal["hermes", "llama3", "mistral", "mistral_args"]


@dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """How calls are written.

    opener: what begins a call, or all of them; empty where a call is the whole reply. arguments_key: the key beside
    `name`. native: the template itself knows tools; else they are described in a system message, as Hermes does it.
    thinks: the template writes or removes thoughts, which end with </think>.
    """

    family: Family
    opener: str
    arguments_key: str = "arguments"
    native: bool = True
    thinks: bool = False


THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"


def format_of(template: str) -> ToolFormat:
    """Tell from a chat template's source how its model writes tool calls.

    Sources: the templates and docs of Hermes 2 Pro and Qwen (<tool_call>), Llama 3.1 to 3.3 (`parameters`, and
    <|python_tag|>), and Mistral ([TOOL_CALLS] with a list, later with [ARGS]).
    """
    thinks = THOUGHT_ENDS in template
    if "[TOOL_CALLS]" in template:
        family: Family = "mistral_args" if "[ARGS]" in template else "mistral"
        return ToolFormat(family=family, opener="[TOOL_CALLS]", thinks=thinks)
    if "<tool_call>" in template:
        return ToolFormat(family="hermes", opener="<tool_call>", thinks=thinks)
    if "tools" in template and ("python_tag" in template or '"parameters"' in template):
        return ToolFormat(family="llama3", opener="", arguments_key="parameters", thinks=thinks)
    return ToolFormat(family="hermes", opener="<tool_call>", native=False, thinks=thinks)
