"""`manage.py deploy NAME[:V|@alias] --wait`: wish a version loaded, see it loaded, or say why not and exit with 1."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inference.spec import DEVICES, MODES, SpecError
from registry.errors import LoadRefused
from registry.models import Version
from registry.selectors import version_by_name
from registry.services.deployments import deployment_load
from webapp.serving.dispatch import node_wake
from webapp.serving.waiting import WaitedInVain, loaded_wait

NUMBERS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_bytes", "idle_seconds")


class Command(BaseCommand):
    help = "Have a model version loaded. Options that aren't given keep the deployment's settings."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", help="model, model:version or model@alias")
        parser.add_argument("--node", default="", help="the machine to load it on; any by default")
        parser.add_argument("--mode", choices=MODES, help="numeric recipe")
        parser.add_argument("--device", choices=DEVICES, help="by default an accelerator, if there is one")
        parser.add_argument("--kv-dtype", help="type of the KV cache, where the engine has a choice")
        for name in NUMBERS:
            parser.add_argument(f"--{name.replace('_', '-')}", type=int)
        for name in ("load-at-start", "load-on-pick"):
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
        parser.add_argument("--adapter", action="append", metavar="NAME", help="a LoRA adapter to load beside it")
        parser.add_argument("--wait", action="store_true", help="until it is loaded")
        parser.add_argument("--seconds", type=float, default=600, help="how long to wait at most")

    def handle(self, *args: Any, name: str, node: str, wait: bool, seconds: float, **options: Any) -> None:
        names = (*NUMBERS, "device", "mode", "kv_dtype", "load_at_start", "load_on_pick")
        settings = {field: options[field] for field in names if options[field] is not None}
        try:
            version = version_by_name(name)
            adapters = [version_by_name(adapter) for adapter in options["adapter"] or []]
            deployment_load(version=version, node=node, settings=settings,
                            adapters=adapters if options["adapter"] else None)
        except Version.DoesNotExist as error:
            raise CommandError(f"{error}.") from None
        except LoadRefused as refusal:
            for line in refusal.lines:
                self.stderr.write(f"  {line['name']}: {line['formula']} = {line['value']:,} {line['unit']}")
            raise CommandError(refusal.reason) from None
        except SpecError as error:
            raise CommandError(str(error)) from None
        node_wake()
        if not wait:
            self.stdout.write(f"{version} is to be loaded.")
            return
        try:
            if not loaded_wait(version, seconds=seconds, say=self.stdout.write):
                raise CommandError(f"{version} was unloaded meanwhile.")
        except WaitedInVain as vain:
            raise CommandError(str(vain)) from None
