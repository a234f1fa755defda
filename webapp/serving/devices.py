"""What this machine's node worker reports of its devices: accelerators where there are some, else the processor."""

import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from inference.machine_memory import machine_memory
from inference.planner import device_by_product, this_machine

QUERY = ["--query-gpu=index,name,memory.total,memory.free", "--format=csv,noheader,nounits"]
QUERY_SECONDS = 5.0
MIB = 1024**2


def devices(*, speeds: bool = True) -> list[dict[str, Any]]:
    """Return the devices as registry.models.Node.devices has them; the first is the one that models are loaded on.

    speeds: measure the processor's, which takes a tenth of a second the first time.
    """
    return [*_accelerators(), _processor(speeds=speeds)]


def _processor(*, speeds: bool) -> dict[str, Any]:
    free, total = machine_memory()
    measured = {"bandwidth": this_machine().bandwidth, "flops": this_machine().flops} if speeds else {}
    return {"name": f"{os.cpu_count()} × {_processor_name()}", "kind": "cpu", "index": 0, "memory_bytes": total,
            "free_bytes": free, **measured}


@functools.cache
def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))[:100]
    except (OSError, StopIteration):
        return platform.machine()


@functools.cache
def _query_tool() -> str | None:
    return shutil.which("nvidia-smi")


def _accelerators() -> list[dict[str, Any]]:
    """Return the CUDA devices by NVIDIA's own tool, which comes with the driver; no torch needed."""
    tool = _query_tool()
    if tool is None:
        return []
    try:
        answer = subprocess.run([tool, *QUERY], capture_output=True, text=True, timeout=QUERY_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in answer.stdout.splitlines():
        index, name, total, free = (part.strip() for part in line.split(","))
        if index.isdecimal() and total.isdecimal() and free.isdecimal():
            known = device_by_product(name, int(total) * MIB)
            found.append({"name": name, "kind": "cuda", "index": int(index), "memory_bytes": int(total) * MIB,
                          "free_bytes": int(free) * MIB, "bandwidth": known.bandwidth if known else 0.0,
                          "flops": known.flops if known else {}})
    return found
