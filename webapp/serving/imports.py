"""Background imports on a node worker: claimed under a lease, kept by a thread, and ended when they are cancelled."""

import contextlib
import logging
import secrets
import threading

from django.conf import settings
from django.db import Error as DatabaseFailure
from django.db import connections

from registry.models import ImportJob
from registry.services.import_jobs import import_claim, import_keep, import_run, imports_waiting
from webapp.serving.dispatch import import_dispatch

logger = logging.getLogger(__name__)
KEEP_SECONDS = 2.0


def import_see_through(pk: str) -> None:
    """Claim an import and run it to its end; returns at once when there is nothing to do for it."""
    job = import_claim(pk=pk, holder=f"{settings.PARLEY_NODE}#{secrets.token_hex(4)}")
    if job is None:
        return
    over, cancelled = threading.Event(), threading.Event()
    keeper = threading.Thread(target=_keep, args=[job, over, cancelled], name=f"import-{pk}", daemon=True)
    keeper.start()
    try:
        job = import_run(job=job, cancelled=cancelled.is_set)
        logger.info("import %s: %s %s", job, job.state, job.reason)
    finally:
        over.set()
        keeper.join()
        connections.close_all()


def _keep(job: ImportJob, over: threading.Event, cancelled: threading.Event) -> None:
    """Renew the lease until the import is over; say so when it was cancelled or is another's now."""
    try:
        while not over.wait(KEEP_SECONDS):
            with contextlib.suppress(DatabaseFailure):  # a database that is away for a moment costs a renewal
                if not import_keep(job=job):
                    cancelled.set()
                    return
    finally:
        connections.close_all()


def imports_redispatch() -> None:
    """Send those imports again that nobody runs: their message was lost, or their worker ended."""
    for pk in imports_waiting():
        import_dispatch(pk)
