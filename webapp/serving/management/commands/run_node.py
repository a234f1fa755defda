"""`manage.py run_node`: this machine's node worker, until SIGTERM or Ctrl-C."""

import os
import threading
from functools import partial
from typing import Any

from celery.signals import worker_shutting_down
from celery.utils.nodenames import nodename
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from webapp.config.celery import app
from webapp.serving.dispatch import IMPORT_QUEUE
from webapp.serving.model_process import STOP_SECONDS
from webapp.serving.node import NodeAlreadyRuns, NodeLoop

CLOSE_SECONDS = STOP_SECONDS + 3


class Command(BaseCommand):
    help = "Run this machine's node worker: loads, unloads and restarts model workers, and sweeps."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            loop = NodeLoop(name=settings.PARLEY_NODE)
        except NodeAlreadyRuns as error:
            raise CommandError(str(error)) from error
        thread = threading.Thread(target=loop.run, name="reconcile")
        thread.start()
        worker_shutting_down.connect(partial(_on_shutdown, loop), weak=False)
        try:
            queues = ["node"] if settings.PARLEY_BLOB_SOURCE else ["node", IMPORT_QUEUE]
            worker = app.Worker(queues=queues, pool="threads", concurrency=3, quiet=True,
                                hostname=nodename("node", loop.name), without_gossip=True, without_mingle=True,
                                without_heartbeat=True, loglevel="INFO")
            worker.start()
        finally:
            loop.stop()
            thread.join()


def _on_shutdown(loop: NodeLoop, **_: Any) -> None:
    """Celery begins to end: end the model workers at the same time."""
    loop.stop()
    force = threading.Timer(CLOSE_SECONDS, os._exit, args=[1])  # it may be waiting for a broker that is away
    force.daemon = True
    force.start()
