"""Texts/s of embeddings over HTTP: this site against a plain Django view around sentence-transformers, in one sitting.

    python -m tools.bench_embeddings MODEL_FOLDER --url http://127.0.0.1:8000 --key sk-parley-… --model minilm

Each of the clients sends one text of so many tokens at a time. The plain view is served by Daphne in a process of its
own that this script starts and ends; it needs sentence-transformers installed. Prints a JSON line for each side, and
one with what the way itself costs here: the same number of requests that only tokenise.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from webapp.ops.processes import free_port

PLAIN_VIEW = '''
import json, os
from django.conf import settings
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="bench")
import django
django.setup()
from django.core.asgi import get_asgi_application
from django.http import JsonResponse
from django.urls import path
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(os.environ["BENCH_MODEL"], device="cpu")

def embeddings(request):
    texts = json.loads(request.body)["input"]
    vectors = model.encode(texts if isinstance(texts, list) else [texts], convert_to_numpy=True)
    return JsonResponse({"data": [{"index": i, "embedding": row.tolist()} for i, row in enumerate(vectors)]})

urlpatterns = [path("v1/embeddings", embeddings)]
application = get_asgi_application()
'''
WORDS = ["tide", "bread", "glacier", "bee", "bridge", "opera", "soil", "map", "clock", "river"]  # one token each


def main() -> int:
    """Measure both sides; 0 when both answered."""
    options = _options()
    texts = [_text(number, options.tokens) for number in range(options.requests)]
    headers = {"authorization": f"Bearer {options.key}"}
    site = asyncio.run(measure(options.url, options.model, texts, options.clients, headers=headers))
    print(json.dumps({"side": "site", **site}), flush=True)
    way = asyncio.run(measure(options.url, options.model, texts, options.clients, headers=headers, path="tokenize",
                              field="prompt"))
    print(json.dumps({"side": "site, tokenise only", **way}), flush=True)
    if options.plain:
        print(json.dumps({"side": "plain view", **plain(options, texts)}), flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.bench_embeddings", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the model's files, for the plain view")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=640)
    parser.add_argument("--tokens", type=int, default=128, help="of each text, special ones included")
    parser.add_argument("--no-plain", dest="plain", action="store_false", help="leave the plain view out")
    return parser.parse_args()


def _text(number: int, tokens: int) -> str:
    """A text of so many tokens, different from its neighbours'."""
    return " ".join(WORDS[(number * 7 + place * (number % 3 + 1)) % len(WORDS)] for place in range(tokens - 2))


async def measure(url: str, model: str, texts: list[str], clients: int, *, headers: dict[str, str],
                  path: str = "v1/embeddings", field: str = "input") -> dict[str, Any]:
    """Send every text by itself from so many clients at once; texts/s and the latencies' quantiles in milliseconds."""
    waiting, took = list(texts), []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=600, limits=limits) as client:

        async def one() -> None:
            while waiting:
                body = {"model": model, field: waiting.pop()}
                began = time.perf_counter()
                (await client.post(f"/{path}", json=body)).raise_for_status()
                took.append(time.perf_counter() - began)

        (await client.post(f"/{path}", json={"model": model, field: texts[0]})).raise_for_status()  # warm
        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        wall = time.perf_counter() - began
    quantiles = statistics.quantiles(took, n=100)
    return {"clients": clients, "requests": len(took), "texts_per_s": round(len(took) / wall, 1),
            "latency_ms": {"p50": round(quantiles[49] * 1e3, 1), "p99": round(quantiles[98] * 1e3, 1)}}


def plain(options: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """The same through a plain Django view, served as this site is."""
    port = free_port()
    folder = options.folder.resolve()
    env = os.environ | {"BENCH_MODEL": str(folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    launch = ("import sys, types; view = types.ModuleType('bench_view'); sys.modules['bench_view'] = view; "
              f"exec({PLAIN_VIEW!r}, view.__dict__); from daphne.cli import CommandLineInterface; "
              f"CommandLineInterface().run(['-p', '{port}', 'bench_view:application'])")
    with tempfile.TemporaryFile() as words:  # not a pipe: nobody would empty it
        process = subprocess.Popen([sys.executable, "-c", launch], env=env, stdout=words, stderr=words)
        try:
            if not _answers(port, process):
                words.seek(0)
                raise SystemExit(f"the plain view did not start: {words.read().decode()[-2000:]}")
            return asyncio.run(measure(f"http://127.0.0.1:{port}", options.model, texts, options.clients, headers={}))
        finally:
            process.terminate()
            process.wait(10)


def _answers(port: int, process: "subprocess.Popen[bytes]", *, seconds: float = 120) -> bool:
    """Wait until the view answers; false when its process ended or the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/", timeout=2)
            return True
        except httpx.TransportError:
            time.sleep(0.2)
    return False


if __name__ == "__main__":
    sys.exit(main())
