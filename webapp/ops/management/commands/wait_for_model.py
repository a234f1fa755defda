"""Shows how a model loads until it is loaded or has failed; `up` runs it while the site starts."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from registry.loads import VersionLoad, version_load
from webapp.ops.preparation import version_or_none

POLL_SECONDS = 0.3


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name or name:version")
        parser.add_argument("--seconds", type=float, default=600, help="give up after that long")

    def handle(self, *args: Any, name: str, seconds: float, **options: Any) -> None:
        version = version_or_none(name)
        if version is None:
            raise CommandError(f"There is no model {name}.")
        deadline, shown = time.monotonic() + seconds, ""
        while (load := version_load(version)).state not in ("loaded", "failed"):
            if load.state == "unloaded":
                self.stdout.write(f"{version} is not wished loaded; load it in the admin.")
                return
            if time.monotonic() > deadline:
                raise CommandError(f"{version} is not loaded after {seconds:.0f} s; the site goes on without it.")
            if (words := progress_words(load)) != shown:
                shown = words
                self.stdout.write(f"{version}: {words}")
            time.sleep(POLL_SECONDS)
        if load.state == "failed":
            raise CommandError(f"{version} can't be loaded: {load.reason}")
        self.stdout.write(f"{version}: loaded.")


def progress_words(load: VersionLoad) -> str:
    """Say how far loading is, in steps of a quarter so that a log stays short."""
    if load.progress is None or not load.progress["phase"]:
        return "waiting for the node worker"
    done, total = load.progress["done"], max(load.progress["total"], 1)
    return f"{load.progress['phase']} {min(100 * done // total // 25 * 25, 100)} %"
