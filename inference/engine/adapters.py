"""The LoRA adapters that requests may name: loaded and replaced at run time, kept as long as a request uses them."""

from collections import Counter
from pathlib import Path

from inference.engine.batch import LoadedAdapter, ModelRunner
from inference.spec import SpecError

MAX_NAME_CHARS = 200


class NamedAdapters:
    """Names → adapters of a runner. One thread calls it.

    A name that is loaded again stands for the new content from then on; running requests keep what they began with.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._named: dict[str, LoadedAdapter] = {}
        self._uses: Counter[int] = Counter()  # running requests of each number

    @property
    def names(self) -> list[str]:
        return sorted(self._named)

    def load(self, name: str, folder: Path) -> bytes:
        """Load an adapter under a name; return the hash of its content.

        Raises ArtifactError or SpecError with the reason; then the name stands for what it did before.
        """
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise SpecError("adapter", f"a name has 1 to {MAX_NAME_CHARS} characters")
        adapter = self._runner.add_adapter(folder)
        former = self._named.get(name)
        self._named[name] = adapter
        if former is not None:
            self._drop_if_unused(former.number)
        return adapter.digest

    def unload(self, name: str) -> None:
        """Let no new request name it. Raises SpecError when there is none of that name."""
        number = self._find(name).number
        del self._named[name]
        self._drop_if_unused(number)

    def take(self, name: str) -> LoadedAdapter:
        """Return an adapter for a request, which gives it back at its end. Raises SpecError for an unknown name."""
        adapter = self._find(name)
        self._uses[adapter.number] += 1
        return adapter

    def give_back(self, number: int) -> None:
        """A request with this adapter has ended; 0 is none."""
        if number:
            self._uses[number] -= 1
            self._drop_if_unused(number)

    def _find(self, name: str) -> LoadedAdapter:
        if name not in self._named:
            loaded = ", ".join(self.names) or "none"
            raise SpecError("adapter", f"{name[:80]!r} is not loaded (loaded: {loaded[:400]})")
        return self._named[name]

    def _drop_if_unused(self, number: int) -> None:
        named = any(adapter.number == number for adapter in self._named.values())
        if not named and self._uses[number] <= 0:
            del self._uses[number]
            self._runner.drop_adapter(number)
