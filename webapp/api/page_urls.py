"""Addresses of the API's pages."""

from django.urls import path

from webapp.api import page_views

app_name = "api_pages"
urlpatterns = [
    path("", page_views.docs, name="docs"),
    path("reference/", page_views.reference, name="reference"),
]
