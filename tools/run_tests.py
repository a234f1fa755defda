"""Everything that `make test` checks, in order; the first failure that makes the rest pointless ends it.

Linters and types come first since they are quick. PostgreSQL's absence is said aloud, and is a failure where CI is set.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.postgres import PostgresUnavailable, postgres_server

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = [sys.executable, "-m", "pytest", "--durations=15"]


def main() -> int:
    """Run all checks; 0 when every one passed. A failed check doesn't hide the ones after it."""
    os.chdir(ROOT)
    env = os.environ | {"PARLEY_SECRET_KEY": "a key for tests only"}
    failed = [name for name, command in static_checks() if not passed(name, command, env)]
    if not passed("tests on SQLite", PYTEST, _without(env, "DATABASE_URL")):
        failed.append("tests on SQLite")
    failed += database_tests_on_postgres(env)
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks passed.", flush=True)
    return 1 if failed else 0


def static_checks() -> list[tuple[str, Sequence[str]]]:
    """Linter, types, import contracts and the browser code's own tests, as (name, command)."""
    checks: list[tuple[str, Sequence[str]]] = [
        ("ruff", [str(BIN / "ruff"), "check"]),
        ("mypy", [sys.executable, "-m", "mypy"]),
        ("import contracts", [str(BIN / "lint-imports")]),
    ]
    if scripts := sorted(str(path) for path in Path("tests/js").rglob("*.test.js")):
        checks.append(("browser code", [shutil.which("node") or str(BIN / "node"), "--test", *scripts]))
    return checks


def database_tests_on_postgres(env: Mapping[str, str]) -> list[str]:
    """Run the tests that use the database again on PostgreSQL; return what failed."""
    name = "database tests on PostgreSQL"
    try:
        with postgres_server() as url:
            command = [*PYTEST, "-m", "postgres and not soak"]
            return [] if passed(name, command, {**env, "DATABASE_URL": url}) else [name]
    except PostgresUnavailable as reason:
        print(f"\nSKIPPED: {name}: {reason}.", flush=True)
        return [name] if env.get("CI") else []


def passed(name: str, command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Run one check with its output on the terminal and say how long it took."""
    print(f"\n== {name}", flush=True)
    started = time.monotonic()
    status = subprocess.call(command, env=dict(env))
    words = "passed" if status == 0 else f"FAILED (exit code {status})"
    print(f"== {name}: {words} in {time.monotonic() - started:.0f} s", flush=True)
    return status == 0


def _without(env: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in env.items() if key != name}


if __name__ == "__main__":
    sys.exit(main())
