"""A processor for each thread of a team, so that the system never puts two of them on one.

Woken after a step's end while another process ran on one of two processors, both members were put on the other, and
stayed there: each had run microseconds ago, and the system moves no such thread. They then took turns for whole steps.
"""

import logging
import os

import numpy as np
from numba import njit, prange, set_num_threads

from inference.kernels.team import SYNC_SLOTS, barrier, thread_id
from inference.kernels.vector import address

logger = logging.getLogger(__name__)


@njit(parallel=True, nogil=True, cache=True)
def _thread_ids(found, sync, members):
    """Note each member's thread. The barrier makes sure that no thread is two members."""
    for member in prange(members):
        barrier(address(sync), members)
        found[member] = thread_id()


def pin_team(members: int) -> bool:
    """Pin the threads that run teams of that many members, when that is as many as this process has processors.

    A smaller team is left to the system, which has room to choose. Returns whether they were pinned.
    """
    if not hasattr(os, "sched_setaffinity"):
        return False
    processors = sorted(os.sched_getaffinity(0))
    if members != len(processors) or members == 1:
        return False
    set_num_threads(members)
    threads, sync = np.zeros(members, np.int32), np.zeros(SYNC_SLOTS, np.int64)
    _thread_ids(threads, sync, members)
    try:
        for thread, processor in zip(threads.tolist(), processors, strict=True):
            os.sched_setaffinity(thread, {processor})
    except OSError as error:  # a sandbox may forbid it; the team runs as well without, beside nothing else
        logger.info("The engine's threads can't be pinned: %s", error)
        return False
    return True
