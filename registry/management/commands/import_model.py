"""`manage.py import_model PATH --name N`: take a model in and print `name:version`, or say why not and exit with 1."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from registry.models import Kind, Version
from registry.selectors import version_by_name
from registry.services.imports import ImportRefused, version_import


class Command(BaseCommand):
    help = "Import a folder with safetensors, a LoRA adapter's folder, or a .gguf file, and print name:version."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="a folder in Hugging Face layout, or one .gguf file")
        parser.add_argument("--name", required=True, help="the model's name in the registry, such as smollm2")
        parser.add_argument("--kind", choices=Kind.values, help="what it is for; by default its own files say it")
        parser.add_argument("--parent", help="the version it was made from, such as smollm2:1; an adapter's base")
        parser.add_argument("--no-publish", action="store_true", help="only verify; publish it in the catalog")

    def handle(self, *args: Any, path: Path, name: str, kind: str | None, parent: str | None, no_publish: bool,
               **options: Any) -> None:
        try:
            base = version_by_name(parent) if parent else None
            version = version_import(path=path, name=name, kind=kind, parent=base, publish=not no_publish)
        except Version.DoesNotExist as error:
            raise CommandError(f"{error}.") from None
        except ImportRefused as refusal:
            raise CommandError(refusal.reason) from None
        self.stdout.write(str(version))
