"""The errors of the registry, with words for the person who asked."""


class RegistryRefused(ValueError):
    """Something that is not done; `reason` says why and, where it can, what helps."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ImportRefused(RegistryRefused):
    """A model that is not taken in; the message says which file and why."""


class ImportCancelled(Exception):
    """An import that is ended because somebody cancelled it, or because its lease is another's."""

    reason = "The import was cancelled."


class UploadRefused(RegistryRefused):
    """A part of an upload that is not taken. `retry`: the same part may be sent again."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class ChangeRefused(RegistryRefused):
    """A change of a model, a version or an alias that is not made."""


class LoadRefused(RegistryRefused):
    """A version that is not loaded. `lines`: the plan's arithmetic, {"name", "formula", "value", "unit"} each."""

    def __init__(self, reason: str, *, lines: "list[dict[str, object]] | None" = None) -> None:
        super().__init__(reason)
        self.lines = lines or []


class NotAllowed(RegistryRefused, PermissionError):
    """Only administrators may do this."""


class BlobMissing(RuntimeError):
    """A version's content that this machine doesn't hold (or holds damaged)."""
