"""The ops app."""

from django.apps import AppConfig


class OpsConfig(AppConfig):
    name = "webapp.ops"

    def ready(self) -> None:
        from webapp.ops import checks  # noqa: F401  (registers the system checks)
