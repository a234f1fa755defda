"""`manage.py collect_garbage`: free content that no version uses, and say how much that is."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.template.defaultfilters import filesizeformat

from registry.garbage import garbage_collect


class Command(BaseCommand):
    help = "Free content that no version uses any more, and what interrupted imports and uploads left."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would be freed")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        found = garbage_collect(dry_run=dry_run)
        for sha256 in found.blobs:
            self.stdout.write(sha256)
        size = filesizeformat(found.blob_bytes).replace("\xa0", " ")
        freed = "would be freed" if dry_run else "freed"
        self.stdout.write(f"{len(found.blobs)} blobs, {size} {freed}; {len(found.folders)} folders, "
                          f"{found.stagings} stagings and {found.uploads} uploads removed.")
