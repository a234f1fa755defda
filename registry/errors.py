"""The errors of the registry, with words for the person who asked."""


class ImportRefused(ValueError):
    """A model that is not taken in; the message says which file and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BlobMissing(RuntimeError):
    """A version's content that this machine doesn't hold (or holds damaged)."""
