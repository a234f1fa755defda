"""HTTP and WebSocket entry points for Daphne."""

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.config.settings")
django_application = get_asgi_application()  # before anything that imports models

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402

from webapp.api.asgi import ApiHandler, is_api  # noqa: E402
from webapp.catalog import routing as catalog  # noqa: E402
from webapp.chat import routing as chat  # noqa: E402

sockets = URLRouter(chat.websocket_urlpatterns + catalog.websocket_urlpatterns)
api_application = ApiHandler()


async def http(scope: Any, receive: Any, send: Any) -> None:
    """Programs' requests go past everything that pages need: sessions, CSRF tokens, threads."""
    answer = api_application if is_api(scope["path"]) else django_application
    await answer(scope, receive, send)


application = ProtocolTypeRouter({
    "http": http,
    "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(sockets)),
})
