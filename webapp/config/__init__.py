"""Settings, routing and the Celery application."""

from webapp.config.celery import app as celery_app

__all__ = ["celery_app"]
