"""`manage.py run_version NAME`: one version's model worker by itself, for a container or a machine of its own."""

import argparse
import signal
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from inference.spec import MODES, SpecError
from registry.models import Version
from registry.selectors import version_by_name
from registry.services.deployments import deployment_load
from webapp.serving.model_worker import model_worker_run
from webapp.serving.node import NodeAlreadyRuns, NodeLoop


class Command(BaseCommand):
    help = "Run one model version by itself, and restart it when it dies."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", help="model or model:version, such as smollm2:1")
        parser.add_argument("--mode", choices=MODES, help="numeric recipe; the default keeps the deployment's")
        parser.add_argument("--deployment", type=int, help=argparse.SUPPRESS)  # a node worker starts its children so
        parser.add_argument("--holder", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["deployment"] is not None:
            sys.exit(model_worker_run(deployment_pk=options["deployment"], holder=options["holder"]))
        try:
            version = version_by_name(options["name"])
            loop = NodeLoop(name=f"{settings.PARLEY_NODE}-{version}", version=version)
            settings_given = {"mode": options["mode"]} if options["mode"] else {}
            deployment_load(version=version, node=loop.name, settings=settings_given)
        except Version.DoesNotExist as error:
            raise CommandError(f"There is no version named {options['name']}.") from error
        except (NodeAlreadyRuns, SpecError) as error:
            raise CommandError(str(error)) from error
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: loop.stop())
        loop.run()
