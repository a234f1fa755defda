"""`manage.py undeploy NAME[:V|@alias]`: wish a version unloaded, everywhere or on one machine."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from registry.models import Deployment, Version
from registry.selectors import version_by_name
from registry.services.deployments import deployment_unload
from webapp.serving.dispatch import node_wake
from webapp.serving.waiting import WaitedInVain, unloaded_wait


class Command(BaseCommand):
    help = "Unload a model version. Replies that are being written are finished first, unless it is forced."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", help="model, model:version or model@alias")
        parser.add_argument("--node", help="only on this machine")
        parser.add_argument("--force", action="store_true", help="end running replies, with a reason")
        parser.add_argument("--wait", action="store_true", help="until it is unloaded")
        parser.add_argument("--seconds", type=float, default=600, help="how long to wait at most")

    def handle(self, *args: Any, name: str, node: str | None, force: bool, wait: bool, seconds: float,
               **options: Any) -> None:
        try:
            version = version_by_name(name)
        except Version.DoesNotExist as error:
            raise CommandError(f"{error}.") from None
        rows = Deployment.objects.select_related("version__model").filter(version=version)
        rows = rows if node is None else rows.filter(node=node)
        if not rows:
            raise CommandError(f"{version} is not deployed{f' on {node}' if node else ''}.")
        for row in rows:
            deployment_unload(deployment=row, force=force)
        node_wake()
        if wait:
            try:
                unloaded_wait(version, seconds=seconds)
            except WaitedInVain as vain:
                raise CommandError(str(vain)) from None
        self.stdout.write(f"{version} is {'unloaded' if wait else 'to be unloaded'}.")
