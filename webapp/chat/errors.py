"""What the chat services refuse, in words for the person who asked."""


class SignedOut(Exception):
    """Whoever opened the socket may no longer use the site."""


class ChatRefused(Exception):
    """A request that can't be carried out as it stands. `field` names what to change; empty when nothing does."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field
