"""The chat app."""

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_out


class ChatConfig(AppConfig):
    name = "webapp.chat"

    def ready(self) -> None:
        user_logged_out.connect(_close_sockets, dispatch_uid="chat.close_sockets")


def _close_sockets(*, request: Any, user: Any, **_: Any) -> None:
    from webapp.chat.events import session_ended  # models are not there yet when this module is imported

    if user is not None and request.session.session_key:
        session_ended(user_pk=user.pk, session=request.session.session_key)
