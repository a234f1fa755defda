"""Shows how a model loads until it is loaded or has failed; `up` runs it while the site starts."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.ops.preparation import version_or_none
from webapp.serving.waiting import WaitedInVain, loaded_wait


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name or name:version")
        parser.add_argument("--seconds", type=float, default=600, help="give up after that long")

    def handle(self, *args: Any, name: str, seconds: float, **options: Any) -> None:
        version = version_or_none(name)
        if version is None:
            raise CommandError(f"There is no model {name}.")
        try:
            if not loaded_wait(version, seconds=seconds, say=self.stdout.write):
                self.stdout.write(f"{version} is not wished loaded; load it in the catalog.")
        except WaitedInVain as vain:
            raise CommandError(f"{vain} The site goes on without it.") from None
