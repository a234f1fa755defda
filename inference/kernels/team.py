"""Threads that run one step together: a barrier and a shared counter, in place of one parallel region per kernel.

A step has some 200 stages of 10 to 100 µs. Starting numba's threads for each would cost as much as the work, so they
are started once a step and meet at a barrier between stages.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from inference.kernels.vector import INT64, Builder, Value, pointer

SYNC_SLOTS = 64
"""int64 elements of a team's shared state; the slots in use lie on cache lines of their own."""
_ARRIVED, _ROUND = 0, 16
NEXT_ITEM = 32
_SPINS = 4000  # some µs; then the processor is offered to others, so that a busy machine is not made worse


@intrinsic
def fetch_add(_context: Any, _address: Any, _amount: Any) -> Any:
    """fetch_add(address, amount) -> value before, atomically."""

    def codegen(_ctx: Any, b: Builder, _signature: Any, args: Any) -> Value:
        return b.atomic_rmw("add", pointer(b, args[0], INT64), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load_acquire(_context: Any, _address: Any) -> Any:
    """load_acquire(address) -> int64 that another thread may be changing."""

    def codegen(_ctx: Any, b: Builder, _signature: Any, args: Any) -> Value:
        return b.load_atomic(pointer(b, args[0], INT64), "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_release(_context: Any, _address: Any, _value: Any) -> Any:
    """store_release(address, value) after everything this thread wrote before."""

    def codegen(context: Any, b: Builder, _signature: Any, args: Any) -> Value:
        b.store_atomic(args[1], pointer(b, args[0], INT64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def yield_processor(_context: Any) -> Any:
    """Let other threads of the machine run."""

    def codegen(context: Any, b: Builder, _signature: Any, _args: Any) -> Value:
        kind = ir.FunctionType(ir.IntType(32), [])
        b.call(cgutils.get_or_insert_function(b.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def thread_id(_context: Any) -> Any:
    """Return the system's number of the calling thread."""

    def codegen(_ctx: Any, b: Builder, _signature: Any, _args: Any) -> Value:
        kind = ir.FunctionType(ir.IntType(32), [])
        return b.call(cgutils.get_or_insert_function(b.module, kind, "gettid"), [])

    return types.int32(), codegen


@njit
def barrier(sync: int, members: int) -> None:
    """Wait until all members are here. sync: address of SYNC_SLOTS int64, zero at first."""
    if members == 1:
        store_release(sync + 8 * NEXT_ITEM, 0)
        return
    current = load_acquire(sync + 8 * _ROUND)
    if fetch_add(sync + 8 * _ARRIVED, 1) == members - 1:
        store_release(sync + 8 * _ARRIVED, 0)
        store_release(sync + 8 * NEXT_ITEM, 0)
        store_release(sync + 8 * _ROUND, current + 1)
        return
    spins = 0
    while load_acquire(sync + 8 * _ROUND) == current:
        spins += 1
        if spins > _SPINS:
            yield_processor()


@njit
def next_item(sync: int) -> int:
    """Return the next number, from 0, that no other member got since the last barrier."""
    taken: int = fetch_add(sync + 8 * NEXT_ITEM, 1)
    return taken


@njit
def share(count: int, member: int, members: int) -> tuple[int, int]:
    """Return this member's part [first, last) of count items."""
    return count * member // members, count * (member + 1) // members
