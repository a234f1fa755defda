"""Quantises a model: `python -m inference.quantize SRC OUT --method METHOD` writes a checkpoint and says what it costs.

SRC is a folder or a GGUF file; OUT becomes a folder that transformers, vLLM and this engine read (compressed-tensors).
Figures compare it with SRC in float32 on the evaluation's text: `here`, with activations in floating point as this
engine keeps them, and `rounded_activations`, with activations rounded as the checkpoint asks of kernels that do.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.quantising.calibration import LEAST_TOKENS, MOST_TOKENS, calibration_ids, load_model
from inference.quantising.checkpoint import write_checkpoint
from inference.quantising.methods import METHODS, Choices, Method, method_of
from inference.quantising.report import figures_here, figures_with_rounded_activations
from inference.quantising.run import check, quantise
from inference.spec import SpecError
from inference.text.tokenizer import TextTokenizer


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_places(source: Path, out: Path) -> None:
    if not source.exists():
        raise ArtifactError(str(source), "there is no such file or folder")
    if out.exists():
        raise ArtifactError(str(out), "exists already; give a new folder's name")
    if not out.parent.is_dir():
        raise ArtifactError(str(out.parent), "is not a folder")


def quantise_checkpoint(
    path: Path, out: Path, method: Method, *, texts: list[Path], tokens: int = MOST_TOKENS, evaluate: bool = True
) -> dict[str, Any]:
    """Quantise the model at path into the new folder out and return the figures. Raises ArtifactError or SpecError."""
    _check_places(path, out)
    source = ModelSource.open(path)
    if quantised := next((info for info in source.tensors.values() if info.quantised), None):
        raise ArtifactError(path.name, f"is quantised already ({quantised.dtype}); give what it was made from")
    spec = source.decoder_spec()
    tokenizer = TextTokenizer.from_path(path)
    sequences = calibration_ids(tokenizer, texts, longest=spec.max_position, most=tokens)
    _say(f"reading {path.name}")
    model = load_model(source)
    check(model, method)
    _say(f"calibrating on {sum(map(len, sequences)):,} tokens")
    layers = quantise(model, sequences, method, on_layer=lambda done, total: _say(f"layer {done} of {total}"))
    write_checkpoint(out, path=path, source=source, model=model, method=method, layers=layers)
    _say(f"wrote {out}")
    figures: dict[str, Any] = {"layers": len(layers)}
    if evaluate:
        _say("comparing with the source")
        figures["here"] = figures_here(out, reference=path)
        if method.round_inputs is not None:
            figures["rounded_activations"] = figures_with_rounded_activations(
                model, list(layers), method.round_inputs, source=source, tokenizer=tokenizer)
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 when the model can't be quantised."""
    parser = argparse.ArgumentParser(prog="inference.quantize", description=__doc__)
    parser.add_argument("source", type=Path, help="a model's folder or .gguf file")
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--text", type=Path, action="append", default=[], metavar="FILE",
                        help="a text to calibrate on, may be repeated (texts of the package)")
    parser.add_argument("--tokens", type=int, default=MOST_TOKENS, help=f"how many tokens of them ({MOST_TOKENS:,})")
    parser.add_argument("--group-size", type=int, default=64, help="inputs that share a scale in 4 bits (64)")
    parser.add_argument("--fp8-activations", action="store_true", help="fp8: ask for activations in FP8 too")
    parser.add_argument("--no-evaluation", action="store_true", help="don't compare with the source")
    options = parser.parse_args(arguments)
    if options.tokens < LEAST_TOKENS:
        parser.error(f"--tokens must be at least {LEAST_TOKENS}")
    if options.group_size < 8 or options.group_size % 8:
        parser.error("--group-size must be a multiple of 8")
    choices = Choices(group_size=options.group_size, fp8_activations=options.fp8_activations)
    began = time.monotonic()
    try:
        figures = quantise_checkpoint(options.source, options.out, method_of(options.method, choices),
                                      texts=options.text, tokens=options.tokens, evaluate=not options.no_evaluation)
    except (ArtifactError, SpecError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"method": options.method, **figures, "seconds": round(time.monotonic() - began, 1)}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
