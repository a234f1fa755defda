"""WebSocket addresses."""

from django.urls import path

from webapp.chat.consumer import ChatConsumer

websocket_urlpatterns = [path("ws/chat/", ChatConsumer.as_asgi())]
