"""What verification says: one result a check, in words that name file and tensor, and the facts it learned."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["pass", "warn", "refuse"]
SubjectKind = Literal["chat", "embedding", "rerank", "adapter"]
KINDS: tuple[SubjectKind, ...] = ("chat", "embedding", "rerank", "adapter")


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """How one check ended. message: a sentence for people; file and tensor: what it is about, empty when neither."""

    name: str
    outcome: Outcome
    message: str
    file: str = ""
    tensor: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What verification learns of a model that it doesn't refuse.

    parameters: tied embeddings counted once. context_length: most tokens of prompt and reply together.
    vocabulary_digest: SHA-256 over the tokens in order of their ids; where it differs, the same text gives other ids.
    """

    parameters: int = 0
    context_length: int = 0
    vocabulary_digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All results, in the order in which the checks ran. not_run: checks that needed what another one refused."""

    results: tuple[CheckResult, ...]
    facts: Facts = Facts()
    not_run: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of all results."""
        outcomes = {result.outcome for result in self.results}
        return "refuse" if "refuse" in outcomes else "warn" if "warn" in outcomes else "pass"

    @property
    def refusals(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if result.outcome == "refuse")

    @property
    def warnings(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if result.outcome == "warn")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as `from_dict` takes them and as a version stores them."""
        return {"outcome": self.outcome, "results": [asdict(result) for result in self.results],
                "facts": asdict(self.facts), "not_run": list(self.not_run)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        """Return the report that `to_dict` wrote."""
        return cls(results=tuple(CheckResult(**result) for result in values["results"]),
                   facts=Facts(**values["facts"]), not_run=tuple(values["not_run"]))
