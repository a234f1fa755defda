"""What a node worker does now and then: imports that nobody runs, uploads that nobody finishes, and what they left."""

import time
from collections.abc import Callable

from django.conf import settings

from registry.garbage import folders_collect
from registry.services.uploads import uploads_expire
from registry.services.versions import versions_reject_interrupted
from registry.staging import staging_clean
from webapp.serving.imports import imports_redispatch

OFTEN, SELDOM = 5.0, 3600.0


class Housekeeping:
    """Each duty with its interval; the first round does all of them."""

    def __init__(self) -> None:
        duties: list[tuple[float, Callable[[], object]]] = [(SELDOM, folders_collect)]
        if not settings.PARLEY_BLOB_SOURCE:  # a machine without the site's storage has no part in imports
            duties += [(OFTEN, imports_redispatch), (SELDOM, staging_clean), (SELDOM, uploads_expire),
                       (SELDOM, versions_reject_interrupted)]
        self._duties = [[0.0, interval, duty] for interval, duty in duties]

    def do_what_is_due(self) -> None:
        for entry in self._duties:
            due, interval, duty = entry
            if time.monotonic() >= due:
                entry[0] = time.monotonic() + interval
                duty()
