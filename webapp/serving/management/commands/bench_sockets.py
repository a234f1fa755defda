"""Tokens/s through the site's sockets, and of the engine alone on the same prompts, lengths and threads, as JSON."""

import asyncio
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.client import EngineProcess
from inference.protocol import EngineFrame, StepOutput, Submit
from inference.spec import EngineConfig, SamplingParams
from registry.models import Deployment
from registry.selectors import version_by_name, version_folder
from webapp.serving.models import Generation
from webapp.serving.socket_bench import SignedIn, prompts, run

PASSWORD = "bench-sockets-only"


class Command(BaseCommand):
    help = "Measure tokens/s through signed-in sockets against the engine alone. Run it beside `make up`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default="http://127.0.0.1:8000")
        parser.add_argument("--model", default="smollm2")
        parser.add_argument("--sockets", type=int, default=8)
        parser.add_argument("--generations", type=int, default=32)
        parser.add_argument("--max-tokens", type=int, default=128)
        parser.add_argument("--repeats", type=int, default=3)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["generations"] % options["sockets"]:
            raise CommandError("--generations must be a multiple of --sockets.")
        version = version_by_name(options["model"])
        deployment = Deployment.objects.filter(version=version, state="loaded").first()
        if deployment is None:
            raise CommandError(f"{version} is not loaded: load it first.")
        users = [_user(i) for i in range(options["sockets"])]
        try:
            rates = []
            for _ in range(options["repeats"]):
                through, pks = _through_sockets(users, version.pk, options)
                rates.append((through, _engine_alone(str(version_folder(version)), deployment, pks)))
        finally:
            for user in users:
                user.conversations.all().delete()
                user.generations.all().delete()
                user.delete()
        ratios = sorted(through / alone for through, alone in rates)
        through, alone = sorted(rates, key=lambda pair: pair[0] / pair[1])[len(rates) // 2]
        self.stdout.write(json.dumps({
            "bench": "sockets", "mode": deployment.mode, "sockets": options["sockets"],
            "generations": options["generations"], "through_sockets_tokens_per_s": round(through, 1),
            "engine_alone_tokens_per_s": round(alone, 1), "ratio": round(through / alone, 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
        }))


def _user(number: int) -> Any:
    user, _ = get_user_model().objects.get_or_create(username=f"bench-{number}")
    user.set_password(PASSWORD)
    user.save()
    return user


def _through_sockets(users: list[Any], version: int, options: dict[str, Any]) -> tuple[float, list[str]]:
    """Return tokens/s from the first send to the last end, and the generations; lost or doubled tokens end the run."""
    sessions = [SignedIn(options["url"], user.username, PASSWORD) for user in users]
    texts = prompts(options["generations"])
    share = len(texts) // len(sessions)
    work = [
        {session.new_conversation(version=version, max_tokens=options["max_tokens"]): text
         for text in texts[i * share:(i + 1) * share]}
        for i, session in enumerate(sessions)
    ]
    seconds, replies = asyncio.run(run(sessions, work))
    rows = {str(row.pk): row for row in Generation.objects.filter(pk__in=replies)}
    for pk, reply in replies.items():
        if reply.problems or reply.view["state"] != "done" or reply.text != rows[pk].text:
            raise CommandError(f"Reply {pk} is wrong: {reply.problems or reply.view}")
    return sum(row.output_count for row in rows.values()) / seconds, list(rows)


def _engine_alone(model: str, deployment: Deployment, pks: list[str]) -> float:
    """Return tokens/s of a fresh engine on the prompts and parameters of these generations, all submitted at once."""
    ended = threading.Semaphore(0)
    counts: dict[str, int] = {}

    def on_frame(frame: EngineFrame) -> None:
        if isinstance(frame, StepOutput):
            for delta in frame.deltas:
                counts[delta.request_id] = delta.index
                if delta.finish_reason:
                    ended.release()

    rows = list(Generation.objects.filter(pk__in=pks))
    config = EngineConfig(model=model, mode=deployment.mode, max_model_len=deployment.max_model_len,  # type: ignore[arg-type]
                          max_num_seqs=deployment.max_num_seqs)
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineProcess.start(config, socket_dir=Path(folder), on_frame=on_frame, on_lost=lambda reason: None)
        engine.wait_ready(timeout=300, on_loading=lambda frame: None)
        start = time.perf_counter()
        for row in rows:
            engine.submit(Submit(request_id=str(row.pk), prompt_ids=row.prompt_ids,
                                 params=msgspec.convert(row.params, SamplingParams)))
        for _ in rows:
            ended.acquire()
        seconds = time.perf_counter() - start
        engine.stop()
    if {str(row.pk): row.output_count for row in rows} != counts:
        raise CommandError("The engine alone wrote other lengths than through the sockets.")
    return sum(counts.values()) / seconds
