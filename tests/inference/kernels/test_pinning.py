"""A team that takes every processor has each of its threads on one of its own; a smaller one is left alone."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from inference.kernels.pinning import pin_team
pinned = pin_team(int(sys.argv[1]))
tasks = [os.sched_getaffinity(int(task.name)) for task in Path("/proc/self/task").iterdir()]
own = sorted(next(iter(cpus)) for cpus in tasks if len(cpus) == 1)
print(pinned, own, len(os.sched_getaffinity(0)))
"""


def pinned_to(members: int) -> str:
    """Run it in a process of its own, since the threads stay pinned."""
    return subprocess.run([sys.executable, "-c", PROGRAM, str(members)], check=True, capture_output=True,
                          text=True).stdout.strip()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")
def test_only_a_team_of_all_processors_is_pinned_and_the_caller_never() -> None:
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        assert pinned_to(len(processors)) == f"True {processors} {len(processors)}"
    assert pinned_to(1) == f"False {[] if len(processors) > 1 else processors} {len(processors)}"
