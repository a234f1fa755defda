"""The ops app."""

from django.apps import AppConfig


class OpsConfig(AppConfig):
    name = "webapp.ops"
