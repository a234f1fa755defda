"""Devices that models run on: their memory, how fast they read it and how fast they multiply, with sources."""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from inference.spec import SpecError

GB, TB, TERA = 10**9, 10**12, 10**12


@dataclass(frozen=True, kw_only=True)
class Device:
    """memory_bytes; bandwidth in bytes/s; flops: FLOP/s by precision ("16": bf16 and fp16, "8": fp8 and int8, "32").

    Dense figures, without sparsity. Without a bandwidth or FLOP/s (0) a plan has no time floors. runtime_bytes: what a
    process takes on it before it holds a model. kind: "cuda" or "cpu". source: where the figures are from.
    """

    name: str
    kind: str
    memory_bytes: int
    bandwidth: float = 0.0
    flops: dict[str, float] = field(default_factory=dict)
    runtime_bytes: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        if self.memory_bytes <= 0:
            raise SpecError("memory", "must be a positive number of bytes")
        if self.bandwidth < 0 or any(value < 0 for value in self.flops.values()):
            raise SpecError("bandwidth", "bandwidth and FLOP/s must not be negative")

    def flops_for(self, weight_bits: float) -> float:
        """Return FLOP/s with weights of that many bits: formats that can't be multiplied directly count as 16 bits."""
        wanted = "32" if weight_bits > 16 else "8" if weight_bits == 8 else "16"
        return self.flops.get(wanted) or self.flops.get("16") or self.flops.get("32") or 0.0


DEVICES: dict[str, Device] = {
    device.name.lower(): device
    for device in (
        Device(name="H100", kind="cuda", memory_bytes=80 * GB, bandwidth=3.35 * TB,
               flops={"16": 989.4 * TERA, "8": 1978.9 * TERA, "32": 66.9 * TERA},
               source="NVIDIA H100 Tensor Core GPU datasheet, SXM5 80 GB; halved from its figures with sparsity"),
        Device(name="H200", kind="cuda", memory_bytes=141 * GB, bandwidth=4.8 * TB,
               flops={"16": 989.4 * TERA, "8": 1978.9 * TERA, "32": 66.9 * TERA},
               source="NVIDIA H200 Tensor Core GPU datasheet, SXM 141 GB; halved from its figures with sparsity"),
        Device(name="A100", kind="cuda", memory_bytes=80 * GB, bandwidth=2.039 * TB,
               flops={"16": 312 * TERA, "8": 624 * TERA, "32": 19.5 * TERA},
               source="NVIDIA A100 Tensor Core GPU datasheet, SXM4 80 GB; 8 bit is INT8"),
        Device(name="L40S", kind="cuda", memory_bytes=48 * GB, bandwidth=864 * GB,
               flops={"16": 362.05 * TERA, "8": 733 * TERA, "32": 91.6 * TERA},
               source="NVIDIA L40S GPU datasheet; dense figures"),
        Device(name="RTX 4090", kind="cuda", memory_bytes=24 * GB, bandwidth=1008 * GB,
               flops={"16": 165.2 * TERA, "8": 330.3 * TERA, "32": 82.6 * TERA},
               source="NVIDIA Ada GPU architecture whitepaper v2, appendix A: FP32 accumulation, dense"),
    )
}
ALIASES = {"rtx4090": "rtx 4090", "4090": "rtx 4090", "rtx-4090": "rtx 4090"}
THIS_MACHINE = "cpu"


def device_named(name: str) -> Device:
    """Return a known device, or this machine's processor for "cpu". Raises SpecError for an unknown name."""
    key = name.strip().lower()
    if key == THIS_MACHINE:
        return this_machine()
    known = DEVICES.get(ALIASES.get(key, key))
    if known is None:
        names = ", ".join([*(device.name for device in DEVICES.values()), THIS_MACHINE])
        raise SpecError("device", f"{name[:40]!r} is not known (known: {names}); or give its memory")
    return known


def device_by_product(product: str, memory_bytes: int) -> Device | None:
    """Return the known device behind a product name such as "NVIDIA A100-SXM4-80GB", or None.

    Cards of the same name for other slots are slower, and those with other memory may be.
    """
    words = product.upper()
    for device in DEVICES.values():
        alike = abs(memory_bytes / device.memory_bytes - 1) < 0.1  # datasheets count in rounded decimal units
        if device.name.upper() in words and alike and not any(slot in words for slot in ("PCIE", "NVL")):
            return device
    return None


@functools.cache
def this_machine() -> Device:
    """Return this machine's processor: memory as the system says, bandwidth measured once, FLOP/s from its cores.

    Measuring takes a tenth of a second and starts a process for each core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gigahertz, per_cycle = _clock(), _flops_per_cycle()
    peak = cores * gigahertz * 10**9 * per_cycle
    return Device(
        name=THIS_MACHINE, kind="cpu", memory_bytes=machine_memory(), bandwidth=_read_bandwidth(cores),
        flops={"32": peak, "16": peak, "8": peak},
        source=f"memory from the system; bandwidth measured by {cores} readers; {cores} cores × {gigahertz:.2f} GHz × "
               f"{per_cycle} FLOP a cycle in float32",
    )


def machine_memory() -> int:
    """Return this machine's memory in bytes, or its control group's limit where that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return memory
    return min(memory, limit)


def _cpuinfo(key: str) -> str:
    """Return the first processor's value of this key, empty where the system doesn't say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key), "")


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Return what this machine's processor can do, in the system's names, such as "avx2"."""
    return frozenset(_cpuinfo("flags").split())


def _clock() -> float:
    """Return the cores' clock in GHz, 2 where the system doesn't say."""
    try:
        return float(_cpuinfo("cpu MHz")) / 1000
    except ValueError:
        return 2.0


def _flops_per_cycle() -> int:
    """Return float32 operations a core does in a cycle: two fused multiply-adds of a whole vector register."""
    lanes = 16 if "avx512f" in cpu_flags() else 8 if "avx2" in cpu_flags() else 4
    return 2 * 2 * lanes


_READER = """
import time
data = b"\\1" * (96 * 2**20)
data.find(b"x")
best = 1e9
for _ in range(8):
    began = time.perf_counter()
    data.find(b"x")
    best = min(best, time.perf_counter() - began)
print(len(data) / best)
"""


def _read_bandwidth(cores: int) -> float:
    """Return bytes/s that all cores together read from memory, 0 when it can't be measured.

    Each process searches a buffer larger than the caches for a byte that isn't there (memchr).
    """
    command = [sys.executable, "-I", "-S", "-c", _READER]
    try:
        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(cores)]
    except OSError:
        return 0.0
    try:
        return sum(float(reader.communicate(timeout=10)[0]) for reader in readers)
    except (subprocess.TimeoutExpired, ValueError):
        return 0.0
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
