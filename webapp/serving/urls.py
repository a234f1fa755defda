"""Addresses that nodes ask."""

from django.urls import path

from webapp.serving import blob_views

app_name = "serving"
urlpatterns = [
    path("nodes/blobs/<str:sha256>", blob_views.blob, name="blob"),
]
