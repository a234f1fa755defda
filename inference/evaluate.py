"""Measures what a numeric mode costs in quality: `python -m inference.evaluate MODEL` compares it with another mode.

Or what quantising a model cost: --reference names the model that MODEL was made from. Both read the same fixed text
(data/evaluation), each part in a context of its own, and their next-token distributions are compared at every token.
Every token's logits come from the engine's own forward pass.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.artifacts.errors import ArtifactError
from inference.engine.batch import Float32, ModelRunner, StepBatch
from inference.engine.runner import load_runner
from inference.spec import MODES, EngineConfig, Mode, SpecError
from inference.text.tokenizer import TextTokenizer

TEXTS = Path(__file__).parent / "data" / "evaluation"
PARTS = ("prose", "code", "chinese")
CHUNK = 128
Float64 = npt.NDArray[np.float64]


def part_text(part: str) -> str:
    """Return the text of one of PARTS."""
    return (TEXTS / f"{part}.txt").read_text(encoding="utf-8")


def log_softmax(logits: Float32) -> Float64:
    """Return log-probabilities of each row, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


def teacher_forced(runner: ModelRunner, token_ids: list[int], *, chunk: int = CHUNK) -> Iterator[Float32]:
    """Yield the logits of each chunk of a sequence, [chunk, vocabulary], valid until the next is asked for.

    Uses the first blocks of the runner's pool; nothing else may be running on it.
    """
    size = runner.block_size
    table = np.arange(-(-len(token_ids) // size), dtype=np.int32)
    for start in range(0, len(token_ids), chunk):
        part = np.array(token_ids[start : start + chunk], np.int32)
        end = start + len(part)
        positions = np.arange(start, end, dtype=np.int32)
        yield runner.forward(
            StepBatch(
                token_ids=part, positions=positions, slots=table[positions // size] * size + positions % size,
                query_starts=np.array([0, len(part)], np.int32), context_lens=np.array([end], np.int32),
                block_tables=table[None, :], logit_rows=np.arange(len(part), dtype=np.int32),
            )  # fmt: skip
        )


@dataclass
class Comparison:
    """Two modes at the same tokens. kl: nats, of the reference to the mode. losses: nats, of the text's next tokens."""

    kl: list[float] = field(default_factory=list)
    agrees: list[bool] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    reference_losses: list[float] = field(default_factory=list)

    def add(self, reference: Float32, other: Float32, next_ids: list[int]) -> None:
        """Add rows of logits [rows, vocabulary]; next_ids: the token after each, the text's last row having none."""
        want, have = log_softmax(reference), log_softmax(other)
        self.kl += (np.exp(want) * (want - have)).sum(axis=-1).tolist()
        self.agrees += (want.argmax(axis=-1) == have.argmax(axis=-1)).tolist()
        rows = np.arange(len(next_ids))
        self.reference_losses += (-want[rows, next_ids]).tolist()
        self.losses += (-have[rows, next_ids]).tolist()

    def extend(self, other: "Comparison") -> None:
        """Add the tokens of another comparison."""
        self.kl += other.kl
        self.agrees += other.agrees
        self.losses += other.losses
        self.reference_losses += other.reference_losses

    def figures(self) -> dict[str, float]:
        """Return what is printed; argmax_agreement is a fraction."""
        return {
            "tokens": len(self.kl),
            "mean_kl": round(float(np.mean(self.kl)), 6),
            "max_kl": round(float(np.max(self.kl)), 6),
            "argmax_agreement": round(float(np.mean(self.agrees)), 5),
            "perplexity": round(float(np.exp(np.mean(self.losses))), 4),
            "reference_perplexity": round(float(np.exp(np.mean(self.reference_losses))), 4),
        }


def compare(reference: ModelRunner, other: ModelRunner, token_ids: list[int]) -> Comparison:
    """Compare two runners at every token of a text."""
    comparison = Comparison()
    start = 0
    for want, have in zip(teacher_forced(reference, token_ids), teacher_forced(other, token_ids), strict=True):
        comparison.add(want, have, token_ids[start + 1 : start + 1 + len(want)])
        start += len(want)
    return comparison


def evaluate(
    model: str, *, mode: Mode, against: Mode, reference: str | None = None, threads: int = 0
) -> dict[str, dict[str, float]]:
    """Return the figures of the whole text and of each part. Raises ArtifactError or SpecError.

    reference: the model to compare with, of the same tokens; None is the same model.
    """
    tokenizer = TextTokenizer.from_path(Path(model))
    ids = {part: tokenizer.encode(part_text(part), add_special_tokens=False) for part in PARTS}
    longest = max(len(part) for part in ids.values())

    def load(path: str, name: Mode) -> ModelRunner:
        config = EngineConfig(
            model=path, mode=name, max_model_len=longest, max_num_seqs=1, max_num_batched_tokens=CHUNK, threads=threads
        )
        return load_runner(config, on_progress=lambda phase, done, total: None)

    wanted, other = load(reference or model, against), load(model, mode)
    if wanted.vocab_size != other.vocab_size:
        raise SpecError("reference", f"has {wanted.vocab_size:,} tokens, the model {other.vocab_size:,}")
    parts = {part: compare(wanted, other, ids[part]) for part in PARTS}
    whole = Comparison()
    for comparison in parts.values():
        whole.extend(comparison)
    return {name: comparison.figures() for name, comparison in {"whole": whole, **parts}.items()}


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 when the model can't be used."""
    parser = argparse.ArgumentParser(prog="inference.evaluate", description=__doc__)
    parser.add_argument("model", help="a model's folder or .gguf file")
    parser.add_argument("--mode", choices=MODES, default="int8", help="the mode to measure (int8)")
    parser.add_argument("--against", choices=MODES, default="float32", help="the mode to compare it with (float32)")
    parser.add_argument("--reference", help="the model to compare it with (the same)")
    parser.add_argument("--threads", type=int, default=0, help="processors to use; 0 takes all (0)")
    options = parser.parse_args(arguments)
    for path in (options.model, options.reference or options.model):
        if not Path(path).exists():
            print(f"{path}: there is no such file or folder", file=sys.stderr)
            return 1
    try:
        figures = evaluate(options.model, mode=options.mode, against=options.against, reference=options.reference,
                           threads=options.threads)
    except (ArtifactError, SpecError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"mode": options.mode, "against": options.against, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
