"""Runs one verification or unpacking after another, each in a fork of its own, and says what it took.

A line in: {"folder", "kind", "base"} to verify, or {"archive", "folder", "name"} to unpack. A line out: {"refusals",
"seconds", "peak_bytes"}. A fork has what the real child has after its imports, so its peak is that of the real one.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from registry.archives import extract_archive
from registry.checks.running import run_each
from registry.checks.subject import Subject
from registry.errors import ImportRefused


def work(job: dict[str, Any]) -> list[str]:
    if "archive" in job:
        try:
            extract_archive(Path(job["archive"]), Path(job["folder"]), name=job["name"], max_bytes=job.get("max_bytes"))
        except ImportRefused as refused:
            return [refused.reason]
        return []
    base = Path(job["base"]) if job.get("base") else None
    subject = Subject(Path(job["folder"]), job["kind"], base=base)
    return [result.message for result in run_each(subject) if result.outcome == "refuse"]


def forked(job: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))
        signal.alarm(20)
        answer = json.dumps(work(job)).encode()
        os.write(writer, answer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        said = answers.read()
    _, status, usage = os.wait4(pid, 0)
    return {"refusals": json.loads(said) if status == 0 else [f"ended with status {status}"],
            "seconds": usage.ru_utime + usage.ru_stime, "wall_seconds": time.monotonic() - began,
            "peak_bytes": usage.ru_maxrss * 1024}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(forked(json.loads(line))), flush=True)
