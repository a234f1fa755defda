"""Why a generation is refused before it is queued, in words for people and a code for programs."""


class GenerationRefused(Exception):
    """A generation that was not queued. `code` is for programs, `message` for people, `field` what to change."""

    def __init__(self, code: str, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


class PromptTooLong(GenerationRefused):
    """The prompt leaves no room for a reply. Both numbers are in tokens."""

    def __init__(self, *, prompt_tokens: int, limit: int) -> None:
        message = (f"The conversation has {prompt_tokens} tokens, and this model takes {limit} in all, the reply "
                   "included. Shorten it or start a new conversation.")
        super().__init__("too_long", message, field="text")
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class VersionUnavailable(GenerationRefused):
    """The version can't be loaded; the reason is the one that its last load gave."""

    def __init__(self, *, version: str, reason: str) -> None:
        super().__init__("unavailable", f"{version} can't be used: {reason}", field="version")
        self.reason = reason
