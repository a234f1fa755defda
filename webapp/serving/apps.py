"""The serving app."""

from django.apps import AppConfig


class ServingConfig(AppConfig):
    name = "webapp.serving"
