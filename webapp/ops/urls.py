"""Addresses of the ops app."""

from django.urls import path

from webapp.ops import views

app_name = "ops"
urlpatterns = [
    path("favicon.ico", views.favicon),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("metrics", views.metrics, name="metrics"),
]
