"""Brings database, static files, administrator and demo models up to date; `up` runs it before the site's processes."""

import json
import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseFailure

from webapp.ops import preparation
from webapp.ops.demo import DEMO_MODELS


class Command(BaseCommand):
    help = __doc__
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--answer-fd", type=int, help="Open file descriptor that gets one JSON object, "
                            '{"admin_password": "..."}, empty when none was made up.')

    def handle(self, *args: Any, answer_fd: int | None, **options: Any) -> None:
        try:
            self._prepare(answer_fd)
        except DatabaseFailure as error:
            raise CommandError(f"The database can't be used: {str(error).strip()}") from error
        except OSError as error:
            raise CommandError(f"A file can't be used: {error}") from error

    def _prepare(self, answer_fd: int | None) -> None:
        self._say(preparation.database_migrate())
        self._say(preparation.static_files_collect())
        line, password = preparation.administrator_create()
        self._say(line)
        self._answer(answer_fd, password)
        for demo in DEMO_MODELS:
            self._say(preparation.demo_model_import(demo))
        self._say(preparation.demo_chat_wish())

    def _say(self, line: str) -> None:
        if line:
            self.stdout.write(line)

    def _answer(self, answer_fd: int | None, password: str) -> None:
        """Hand the password over at once: a later step may fail."""
        if answer_fd is None:
            self._say(f"Password of {preparation.ADMIN}: {password}" if password else "")
            return
        with os.fdopen(answer_fd, "w") as answer:
            json.dump({"admin_password": password}, answer)
