"""The catalog app: pages over the registry."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "webapp.catalog"
