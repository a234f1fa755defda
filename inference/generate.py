"""Runs a model from the command line: `python -m inference.generate PATH --prompt TEXT` streams its reply.

It is the engine of the server, without the server. With --json the reply streams to standard error, and standard
output gets one line at the end; for a model with experts it says which computed how many tokens, which
inference.experts.placement reads.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TextIO

import msgspec

from inference.artifacts.errors import ArtifactError
from inference.engine.loop import EngineLoop
from inference.protocol import SequenceDelta, Submit
from inference.spec import MODES, EngineConfig, SamplingParams, SpecError
from inference.text.chat_template import TemplateError
from inference.text.prompt import PromptBuilder

REQUEST = "generate"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one sentence, without the usage text."""
        self.exit(2, f"{message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, 1 when the model or the prompt can't be used, 2 for a wrong command line."""
    options = _parse(arguments)
    try:
        params = SamplingParams(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed,
                                top_p=options.top_p, top_k=options.top_k, stop=tuple(options.stop),
                                ignore_eos=options.ignore_eos)
        config = EngineConfig(model=str(options.path), mode=options.dtype, max_num_seqs=1)
        prompt_ids = _prompt_ids(options)
        return _run(config, Submit(request_id=REQUEST, prompt_ids=prompt_ids, params=params), as_json=options.json)
    except (ArtifactError, SpecError, TemplateError, OSError, MemoryError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="inference.generate", description=__doc__)
    parser.add_argument("path", type=Path, help="a model's folder or .gguf file")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", help="a user's message")
    prompt.add_argument("--prompt-ids", type=_ids, metavar="1,2,3", help="token ids, taken as they are")
    parser.add_argument("--raw", action="store_true", help="take --prompt as plain text, without the chat template")
    parser.add_argument("--max-tokens", type=int, default=256, help="most new tokens (256)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the likeliest with this share (1: all)")
    parser.add_argument("--top-k", type=int, default=0, help="draw from so many likeliest (0: all)")
    parser.add_argument("--stop", action="append", default=[], help="end before this text; may be given several times")
    parser.add_argument("--seed", type=int, default=0, help="draws with the same seed are the same (0)")
    parser.add_argument("--dtype", choices=MODES, default="int8", help="numeric mode (int8)")
    parser.add_argument("--ignore-eos", action="store_true", help="go on past the model's end tokens")
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    return parser.parse_args(arguments)


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers with commas between them, not {text!r}") from None


def _prompt_ids(options: argparse.Namespace) -> list[int]:
    if not options.path.exists():
        raise FileNotFoundError(f"{options.path}: there is no such file or folder")
    if options.prompt_ids is not None:
        ids: list[int] = options.prompt_ids
        return ids
    builder = PromptBuilder.from_path(options.path)
    if options.raw:
        return builder.text_ids(options.prompt)
    return builder.chat_ids([{"role": "user", "content": options.prompt}])


def _run(config: EngineConfig, submit: Submit, *, as_json: bool) -> int:
    from inference.engine.loading import load_engine  # numba: only once everything else has been checked

    engine = load_engine(config, on_progress=lambda phase, done, total: None)
    engine.loop.submit(submit)
    stream = sys.stderr if as_json else sys.stdout
    output_ids: list[int] = []
    text = ""
    for delta in _deltas(engine.loop):
        shown = "".join(delta.texts) + delta.tail
        output_ids += delta.token_ids
        text += shown
        _write(stream, shown)
    _write(stream, "\n")
    if as_json:
        load = engine.loop.stats(experts=True).experts
        print(json.dumps({
            "prompt_ids": submit.prompt_ids, "output_ids": output_ids, "text": text,
            "finish_reason": delta.finish_reason, "seed": submit.params.seed,
            "timings": msgspec.to_builtins(delta.timings),
        } | ({} if load is None else {"experts": msgspec.to_builtins(load)})))
    if delta.finish_reason == "failed":
        print(delta.error, file=sys.stderr)
        return 1
    return 0


def _deltas(loop: EngineLoop) -> Iterator[SequenceDelta]:
    while loop.has_work:
        yield from loop.step().deltas


def _write(stream: TextIO, text: str) -> None:
    """Show text at once; characters that the terminal can't show become question marks."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
