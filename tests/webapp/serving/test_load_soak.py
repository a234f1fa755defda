"""Loading and unloading for a long time leaves nothing behind: no memory, no process, no socket file.

`pytest -m soak tests/webapp/serving/test_load_soak.py`; PARLEY_SOAK_LOADS sets how many loads are measured.
"""

import os
import time
from pathlib import Path

import psutil
import pytest
from pytest_django import DjangoDbBlocker

from tests.live_site import LiveSite

WARM_UP = 10
LOADS = int(os.environ.get("PARLEY_SOAK_LOADS", "100"))
SETTLE_SECONDS = 3.0
MOST_GROWTH = 1.03
LOOP = """
from django.core.management import call_command
for number in range({number}):
    call_command("deploy", "smollm2:1", "--wait")
    call_command("undeploy", "smollm2:1", "--wait")
"""


def proportional_memory(site: LiveSite) -> dict[str, int]:
    """Bytes that node worker and supervisor hold, their parts of shared pages included."""
    time.sleep(SETTLE_SECONDS)
    pids = {"node worker": site.node_pid, "supervisor": site.process.pid}
    return {name: psutil.Process(pid).memory_full_info().pss for name, pid in pids.items()}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_loads_and_unloads_leave_no_memory_process_or_socket(
        tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    home = tmp_path / "site"
    home.mkdir()
    site = LiveSite(home=home, mode="int8", db_blocker=django_db_blocker)
    try:
        site.manage("shell", "-c", LOOP.format(number=WARM_UP))
        before, processes = proportional_memory(site), len(site.processes())
        site.manage("shell", "-c", LOOP.format(number=LOADS))
        after = proportional_memory(site)
        print(f"{LOADS} loads: {before} before, {after} after")
        assert {name: after[name] / before[name] for name in after if after[name] > before[name] * MOST_GROWTH} == {}
        assert len(site.processes()) == processes
        assert list((home / "run").iterdir()) == []
        with pytest.raises(LookupError):
            _ = site.engine_pid
    finally:
        left = site.stop()
    assert left == []
