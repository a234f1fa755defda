"""Addresses of the API itself; webapp.api.asgi alone resolves them. Its pages are in webapp.api.page_urls."""

from django.urls import path

from webapp.api.app import api
from webapp.api.openapi import openapi

urlpatterns = [
    path("v1/openapi.json", openapi),
    path("", api.urls),
]
