"""Follows a version's load for a terminal: says how far it is until it is loaded, failed or unloaded."""

import time
from collections.abc import Callable

from registry.loads import VersionLoad, version_load
from registry.models import Version

POLL_SECONDS = 0.3


class WaitedInVain(Exception):
    """It is not loaded; the message says why."""


def loaded_wait(version: Version, *, seconds: float, say: Callable[[str], object]) -> bool:
    """Wait until the version is loaded; false when nobody wishes it. Raises WaitedInVain."""
    deadline, shown = time.monotonic() + seconds, ""
    while (load := version_load(version)).state not in ("loaded", "failed"):
        if load.state == "unloaded":
            return False
        if time.monotonic() > deadline:
            raise WaitedInVain(f"{version} is not loaded after {seconds:.0f} s.")
        if (words := progress_words(load)) != shown:
            shown = words
            say(f"{version}: {words}")
        time.sleep(POLL_SECONDS)
    if load.state == "failed":
        raise WaitedInVain(f"{version} can't be loaded: {load.reason}")
    say(f"{version}: loaded.")
    return True


def unloaded_wait(version: Version, *, seconds: float) -> None:
    """Wait until nothing of the version is loaded. Raises WaitedInVain."""
    deadline = time.monotonic() + seconds
    while version_load(version).state not in ("unloaded", "failed"):
        if time.monotonic() > deadline:
            raise WaitedInVain(f"{version} is not unloaded after {seconds:.0f} s.")
        time.sleep(POLL_SECONDS)


def progress_words(load: VersionLoad) -> str:
    """Say how far loading is, in steps of a quarter so that a log stays short."""
    if load.progress is None or not load.progress["phase"]:
        return "waiting for the node worker"
    if load.progress["phase"] == "waiting":
        return "waiting for its turn"
    done, total = load.progress["done"], max(load.progress["total"], 1)
    return f"{load.progress['phase']} {min(100 * done // total // 25 * 25, 100)} %"
