"""Numba kernels of the CPU path: one arithmetic order per row, whatever shares the batch."""

from numba.core import config

from inference.kernels.code_cache import use_code_cache

use_code_cache()
# A team (kernels.team) needs each of its members on a thread of its own, which this layer gives.
config.THREADING_LAYER = "workqueue"
