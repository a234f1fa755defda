"""Which modules a quantisation leaves out or aims at: a config's names and regular expressions, held to cheap ones."""

import re
from typing import Any

from inference.artifacts.errors import ArtifactError

MAX_PATTERNS = 10_000
MAX_PATTERN_CHARS = 300
MAX_REPEATS = 3  # matching takes at most about length**repeats steps
_REPEAT = re.compile(r"[*+]|\{\d*,")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")
_BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"


def read_patterns(value: Any, *, key: str, file: str) -> tuple[str, ...]:
    """Return the list of names under key (None is none of them). Raises ArtifactError."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_PATTERNS or not all(isinstance(item, str) for item in value):
        raise ArtifactError(file, f"quantization_config: {key} is not a list of at most {MAX_PATTERNS:,} names")
    for item in value:
        if len(item) > MAX_PATTERN_CHARS:
            raise ArtifactError(file, f"quantization_config: {key} has a name of {len(item):,} characters, more than "
                                      f"the {MAX_PATTERN_CHARS} allowed")
    return tuple(value)


def compiled(pattern: str, *, key: str, file: str) -> re.Pattern[str]:
    """Compile a regular expression of a config. Raises ArtifactError for a wrong one, or one that may take for ever."""
    if _REPEATED_GROUP.search(pattern) or len(_REPEAT.findall(pattern)) > MAX_REPEATS:
        raise ArtifactError(file, f"quantization_config: {key} has the pattern {pattern[:100]!r}, which repeats groups "
                                  f"or more than {MAX_REPEATS} parts and could take too long")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ArtifactError(file, f"quantization_config: {key} has the pattern {pattern[:100]!r}, which is not a "
                                  f"regular expression ({error})") from None


class NotConverted:
    """The modules that a transformers-style modules_to_not_convert names.

    A name fits from the start up to a dot, as a regular expression with the same end, or as a suffix. Source:
    transformers' should_convert_module.
    """

    def __init__(self, names: tuple[str, ...], *, key: str, file: str) -> None:
        self._suffixes = names
        self._patterns = [compiled(f"(?:{name}){_BOUNDARY}", key=key, file=file) for name in names]

    def __contains__(self, module: str) -> bool:
        return module.endswith(self._suffixes) or any(pattern.match(module) for pattern in self._patterns)


class Targets:
    """The modules that compressed-tensors' targets or ignore name: exact names, `re:` patterns, or the class Linear.

    Source: compressed_tensors.utils.match.match_name and is_match.
    """

    def __init__(self, names: tuple[str, ...], *, key: str, file: str) -> None:
        self.everything = "Linear" in names
        self.names = frozenset(name for name in names if not name.startswith("re:"))
        self._patterns = [compiled(name.removeprefix("re:"), key=key, file=file)
                          for name in names if name.startswith("re:")]

    def named(self, module: str) -> bool:
        """Say whether a name or a pattern fits; the class doesn't count."""
        return module in self.names or any(pattern.match(module) for pattern in self._patterns)

    def __contains__(self, module: str) -> bool:
        return self.everything or self.named(module)
