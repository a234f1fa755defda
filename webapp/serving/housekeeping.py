"""What a node worker does now and then: imports that nobody runs, uploads that nobody finishes, and what they left."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from registry.garbage import folders_collect
from registry.services.uploads import uploads_expire
from registry.services.versions import versions_reject_interrupted
from registry.staging import staging_clean
from webapp.serving.imports import imports_redispatch
from webapp.serving.services import generations_forget

OFTEN, SELDOM = 5.0, 3600.0


@dataclass
class _Duty:
    do: Callable[[], object]
    every: float
    due: float = 0.0


class Housekeeping:
    """Each duty with its interval in seconds; the first round does all of them."""

    def __init__(self) -> None:
        self._duties = [_Duty(folders_collect, SELDOM), _Duty(generations_forget, OFTEN)]
        if not settings.PARLEY_BLOB_SOURCE:  # a machine without the site's storage has no part in imports
            self._duties += [_Duty(imports_redispatch, OFTEN), _Duty(staging_clean, SELDOM),
                             _Duty(uploads_expire, SELDOM), _Duty(versions_reject_interrupted, SELDOM)]

    def do_what_is_due(self) -> None:
        for duty in self._duties:
            if time.monotonic() >= duty.due:
                duty.due = time.monotonic() + duty.every
                duty.do()
