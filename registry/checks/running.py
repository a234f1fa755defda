"""Which checks there are, in which order, and what happens when one refuses: those that need it aren't run."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inference.artifacts.errors import ArtifactError
from inference.text.chat_template import TemplateError
from registry.checks import adapter, files, template, tokenizer, weights
from registry.checks.results import KINDS, CheckResult, Facts, Outcome, Report, SubjectKind
from registry.checks.subject import Subject

DECODERS: tuple[SubjectKind, ...] = ("chat",)
MODELS: tuple[SubjectKind, ...] = ("chat", "embedding", "rerank")
ADAPTERS: tuple[SubjectKind, ...] = ("adapter",)
_TENSOR = re.compile(r"tensors? (?:of )?'([^']{1,200})'")


@dataclass(frozen=True)
class Check:
    """A check: its name for people, what it runs, for which kinds, which others must not have refused.

    seconds: how long its part of the child may take.
    """

    name: str
    run: Callable[[Subject], str]
    kinds: tuple[SubjectKind, ...] = MODELS
    needs: tuple[str, ...] = ()
    seconds: float = 60.0


CHECKS = (
    Check("Files", files.check_files, KINDS),
    Check("Pickles", files.check_pickles, KINDS, ("Files",)),
    Check("Program code", files.check_code, KINDS, ("Files",)),
    Check("Configuration", weights.check_configuration, MODELS, ("Files",)),
    Check("Weights", weights.check_weights, MODELS, ("Files", "Configuration")),
    Check("Architecture", weights.check_architecture, MODELS, ("Configuration", "Weights")),
    Check("Tokenizer", tokenizer.check_tokenizer, MODELS, ("Files",)),
    Check("Vocabulary", tokenizer.check_vocabulary, MODELS, ("Weights", "Tokenizer")),
    Check("Special tokens", tokenizer.check_special_tokens, MODELS, ("Architecture", "Tokenizer")),
    Check("Round trip", tokenizer.check_round_trip, MODELS, ("Vocabulary",)),
    Check("Vocabulary digest", tokenizer.check_digest, MODELS, ("Tokenizer",)),
    Check("Chat template", template.check_template, DECODERS, ("Tokenizer",), 4.0),
    Check("Adapter configuration", adapter.check_adapter_config, ADAPTERS, ("Files",)),
    Check("Adapter weights", adapter.check_adapter_weights, ADAPTERS, ("Adapter configuration",)),
    Check("Adapter vocabulary", tokenizer.check_adapter_vocabulary, ADAPTERS, ("Files",)),
)


def checks_for(kind: SubjectKind) -> tuple[Check, ...]:
    """Return the checks of a kind of model, in order."""
    return tuple(check for check in CHECKS if kind in check.kinds)


def run_each(subject: Subject, on_begin: Callable[[Check], None] = lambda check: None) -> Iterator[CheckResult]:
    """Run the checks one after another; on_begin is called before each. What refused ones leave open is left out."""
    refused: set[str] = set()
    for check in checks_for(subject.kind):
        if refused & set(check.needs):
            refused.add(check.name)
            continue
        on_begin(check)
        result = _run(check, subject)
        if result.outcome == "refuse":
            refused.add(check.name)
        yield result


def not_run(kind: SubjectKind, results: tuple[CheckResult, ...]) -> tuple[str, ...]:
    ran = {result.name for result in results}
    return tuple(check.name for check in checks_for(kind) if check.name not in ran)


def facts_of(subject: Subject) -> Facts:
    return Facts(parameters=subject.parameters, context_length=subject.context_length,
                 vocabulary_digest=subject.vocabulary_digest)


def verify_here(subject: Subject) -> Report:
    """Run all checks in this process, without limits. `registry.checks.run_checks` has them."""
    results = tuple(run_each(subject))
    return Report(results=results, facts=facts_of(subject), not_run=not_run(subject.kind, results))


def _run(check: Check, subject: Subject) -> CheckResult:
    subject.warnings.clear()
    began = time.monotonic()
    file, message = "", ""
    outcome: Outcome = "pass"
    try:
        message = check.run(subject)
        if subject.warnings:
            file, outcome = subject.warnings[0][0], "warn"
            message = "; ".join(f"{name}: {words}" for name, words in subject.warnings)
    except ArtifactError as error:
        file, outcome, message = error.file, "refuse", str(error)
    except TemplateError as error:
        file, outcome, message = template.FILE, "refuse", str(error)
    except MemoryError:
        outcome, message = "refuse", f"{check.name}: needs more memory than verification may take"
    except RecursionError:
        outcome, message = "refuse", f"{check.name}: is nested too deeply"
    except OSError as error:
        file, outcome = str(error.filename or ""), "refuse"
        message = f"{check.name}: a file can't be read ({error.strerror})"
    found = _TENSOR.search(message) if outcome != "pass" else None
    return CheckResult(name=check.name, outcome=outcome, message=message, file=file,
                       tensor=found[1] if found else "", seconds=round(time.monotonic() - began, 3))
