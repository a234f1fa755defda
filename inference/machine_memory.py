"""How much memory this machine has and has free, and which part of it a KV pool without a set size takes; no torch."""

import os
from pathlib import Path

POOL_SHARE = 0.25
"""The part of free memory that a KV pool without a set size may take: other models and processes live here too."""


def machine_memory() -> tuple[int, int]:
    """Return what may still be taken and what there is, in bytes: of the machine, or of its control group if less."""
    page = os.sysconf("SC_PAGE_SIZE")
    free = total = page * os.sysconf("SC_PHYS_PAGES")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    group = Path("/sys/fs/cgroup")
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is not None and used is not None:
        total, free = min(total, limit), min(free, max(0, limit - used))
    return free, total


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def pool_bytes(free: int) -> int:
    """Return the most bytes that a KV pool without a set size takes, of so many that are free beside the weights."""
    return max(0, int(free * POOL_SHARE))
