"""`manage.py verify_blobs`: read all content and say what is damaged; exits with 1 when something is."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from registry.garbage import blobs_damaged


class Command(BaseCommand):
    help = "Read every blob that versions use and list those that are missing or damaged, with who uses them."

    def handle(self, *args: Any, **options: Any) -> None:
        damaged = 0
        for damage in blobs_damaged():
            damaged += 1
            self.stdout.write(f"{damage.sha256} {damage.what}: {', '.join(damage.used_by)}")
        if damaged:
            raise CommandError(f"{damaged} blobs are damaged. Import their versions again, or restore the files.")
        self.stdout.write("All content is as it should be.")
