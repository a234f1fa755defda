"""`manage.py create_api_key USER`: make an API key for somebody and print it, the one time that it is seen."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from webapp.accounts.models import Scope
from webapp.accounts.services import KeyRefused, api_key_create


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the name that the person signs in with")
        parser.add_argument("--name", default="command line", help="what the key is called on the page of keys")
        parser.add_argument("--scopes", default="chat,embed",
                            help=f"what it opens, with commas: {', '.join(Scope.values)}")

    def handle(self, *args: Any, **options: Any) -> None:
        owner = User.objects.filter(username=options["user"]).first()
        if owner is None:
            raise CommandError(f"There is nobody called {options['user']!r}.")
        scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        try:
            made = api_key_create(owner=owner, name=options["name"], scopes=scopes)
        except KeyRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(made.secret)
