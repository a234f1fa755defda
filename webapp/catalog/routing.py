"""WebSocket addresses of the catalog."""

from django.urls import path

from webapp.catalog.consumer import CatalogConsumer

websocket_urlpatterns = [path("ws/catalog/", CatalogConsumer.as_asgi())]
