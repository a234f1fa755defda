"""The child process of verification: `python -m registry.checks FOLDER --kind chat` prints JSON lines and no more.

{"event": "begin", "check", "number", "of"} before a check, {"event": "result", …CheckResult}, and at the end
{"event": "end", "facts", "not_run"}. It ends when its standard input is closed, so that none outlives its parent.
"""

import argparse
import json
import os
import resource
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from registry.checks.results import KINDS
from registry.checks.running import Check, checks_for, facts_of, not_run, run_each
from registry.checks.subject import Subject


def main() -> int:
    options = _parser().parse_args()
    if options.follow_stdin:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # its output is a pipe, and nothing else is to be written
    # Private memory, without the mapped weights: those are as large as they are.
    resource.setrlimit(resource.RLIMIT_DATA, (options.memory, options.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    subject = Subject(options.folder, options.kind, base=options.base, earlier=options.earlier)
    order = [check.name for check in checks_for(options.kind)]

    def begin(check: Check) -> None:
        _print({"event": "begin", "check": check.name, "number": order.index(check.name) + 1, "of": len(order)})
        # Without a handler the signal ends the process, also out of a loop inside a library.
        signal.setitimer(signal.ITIMER_REAL, min(check.seconds, options.seconds))

    results = []
    for result in run_each(subject, begin):
        signal.setitimer(signal.ITIMER_REAL, 0)
        results.append(result)
        _print({"event": "result"} | asdict(result))
    _print({"event": "end", "facts": asdict(facts_of(subject)), "not_run": not_run(options.kind, tuple(results))})
    return 0


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m registry.checks", description=__doc__)
    parser.add_argument("folder", type=Path, help="a model's folder")
    parser.add_argument("--kind", choices=KINDS, required=True, help="what the model is to be")
    parser.add_argument("--base", type=Path, help="the folder of the model that an adapter is for")
    parser.add_argument("--earlier", default="", help="the vocabulary digest of the version before")
    parser.add_argument("--memory", type=int, default=2 * 2**30, help="most bytes of private memory (2 GiB)")
    parser.add_argument("--seconds", type=float, default=120.0, help="most seconds of one check (120)")
    parser.add_argument("--follow-stdin", action="store_true", help="end when standard input is closed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
