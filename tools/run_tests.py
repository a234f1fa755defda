"""Everything that `make test` checks, in two lanes side by side: one for the engine, one for the site.

Most tests use one processor and many only wait, so two lanes take little more than half the time of one. Each check's
output is printed whole when it ends. A failed check doesn't hide the ones after it. PostgreSQL's absence is said aloud,
and is a failure where CI is set.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.postgres import PostgresUnavailable, postgres_server

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = [sys.executable, "-m", "pytest", "--durations=15"]
SITE_TESTS = ["tests/registry", "tests/webapp", "tests/browser"]

Check = tuple[str, Sequence[str]]
_printing = threading.Lock()


def main() -> int:
    """Run all checks; 0 when every one passed."""
    os.chdir(ROOT)
    # One thread each for torch: the lanes share the processors, and its threads spin while they wait for one another.
    env = {"OMP_NUM_THREADS": "1"} | os.environ | {"PARLEY_SECRET_KEY": "a key for tests only"}
    with ThreadPoolExecutor(2) as lanes:
        results = [lanes.submit(list, lane(env)) for lane in (engine_lane, site_lane)]
        failed = [name for result in results for name in result.result()]
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks passed.", flush=True)
    return 1 if failed else 0


def engine_lane(env: Mapping[str, str]) -> Iterator[str]:
    """Run the static checks, all tests that are not the site's, and what uses the database once more on PostgreSQL.

    Yields the names of what failed. PostgreSQL comes here since the site's tests take longer than the engine's.
    """
    on_sqlite = _without(env, "DATABASE_URL")
    engine = [*PYTEST, "tests", *(f"--ignore={folder}" for folder in SITE_TESTS)]
    for name, command in [*static_checks(), ("tests of the engine", engine)]:
        if not passed(name, command, on_sqlite):
            yield name
    yield from database_tests_on_postgres(env)


def site_lane(env: Mapping[str, str]) -> Iterator[str]:
    """Run the site's tests on SQLite; yield the name if they failed."""
    name = "tests of the site on SQLite"
    if not passed(name, [*PYTEST, *SITE_TESTS], _without(env, "DATABASE_URL")):
        yield name


def static_checks() -> list[Check]:
    """Linter, types, import contracts and the browser code's own tests, as (name, command)."""
    checks: list[Check] = [
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
            command = [*PYTEST, *SITE_TESTS, "-m", "postgres and not soak"]
            return [] if passed(name, command, {**env, "DATABASE_URL": url}) else [name]
    except PostgresUnavailable as reason:
        print(f"\nSKIPPED: {name}: {reason}.", flush=True)
        return [name] if env.get("CI") else []


def passed(name: str, command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Run one check, and print its output and how long it took when it ends."""
    print(f"== {name}: started", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        status = subprocess.call(command, env=dict(env), stdout=output, stderr=subprocess.STDOUT)
        output.seek(0)
        words = "passed" if status == 0 else f"FAILED (exit code {status})"
        with _printing:
            print(f"\n== {name}", flush=True)
            shutil.copyfileobj(output, sys.stdout.buffer)
            print(f"== {name}: {words} in {time.monotonic() - started:.0f} s", flush=True)
    return status == 0


def _without(env: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in env.items() if key != name}


if __name__ == "__main__":
    sys.exit(main())
