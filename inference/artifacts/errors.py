"""The one error of this package: a file of a model that can't be used, and why."""


class ArtifactError(ValueError):
    """A file that is damaged, hostile or not understood. `file` is its name; the message is written for people."""

    def __init__(self, file: str, message: str) -> None:
        super().__init__(message)
        self.file = file
        self.message = message

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"
