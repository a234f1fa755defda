"""4,000 random steps of scheduler, prefix cache and block pool keep their books; planted bugs are found and named."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from inference.engine.block_pool import BlockPool, BlockPoolError
from inference.engine.prefix_cache import PrefixCache
from inference.engine.request import Request
from inference.engine.scheduler import Scheduler
from tests.inference.engine.traffic import Traffic

STEPS = 4000
RUN = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.mark.timeout(300)
def test_4000_steps_leak_nothing_and_use_no_block_twice() -> None:
    class Counted(Traffic):
        pass

    while Counted.checks < STEPS:
        run_state_machine_as_test(Counted, settings=RUN)
    print(f"\n{Counted.checks} steps, the books checked after each")


class ForgottenReference(BlockPool):
    """A shared block that one of its holders gives back stays counted as before: it is never free again."""

    def release(self, block: int) -> None:
        if self._references[block] == 1:
            super().release(block)


class FreedUnderAnother(BlockPool):
    """Giving back a shared block frees it although somebody else still reads it: it is handed out a second time."""

    def release(self, block: int) -> None:
        self._references[block] = 1
        super().release(block)


class UncountedHolder(BlockPool):
    """A second holder of a block isn't counted."""

    def share(self, block: int) -> None:
        if self.is_cached(block):
            super().share(block)


class KeyAfterEviction(BlockPool):
    """A block that is taken from the cache can still be found under its old key, with somebody else's content."""

    def allocate(self) -> int:
        keys = {block: self._key_of[block] for block in self._cached}
        block = super().allocate()
        if key := keys.get(block):
            self._block_of[key] = block
        return block


class SaltIgnored(PrefixCache):
    """Requests of different adapters find each other's blocks."""

    def match(self, request: Request) -> list[int]:
        salt, request.salt = request.salt, b""
        blocks = super().match(request)
        request.salt = salt
        return blocks


class LostOnPreemption(Scheduler):
    """A preempted request drops its block table without giving the blocks back."""

    def _preempt(self, request: Request) -> None:
        del request.block_table[:]
        super()._preempt(request)


def _with_pool(pool: type[BlockPool]) -> Callable[..., Scheduler]:
    def build(**limits: int) -> Scheduler:
        scheduler = Scheduler(**limits)
        scheduler.pool = pool(limits["num_blocks"])
        scheduler.prefix_cache = PrefixCache(scheduler.pool, limits["block_size"])
        return scheduler

    return build


def _with_cache(cache: type[PrefixCache]) -> Callable[..., Scheduler]:
    def build(**limits: int) -> Scheduler:
        scheduler = Scheduler(**limits)
        scheduler.prefix_cache = cache(scheduler.pool, limits["block_size"])
        return scheduler

    return build


PLANTED: dict[str, tuple[Callable[..., Scheduler], type[AssertionError], str]] = {
    "a forgotten reference": (_with_pool(ForgottenReference), BlockPoolError, "reference counts are wrong"),
    "a block freed under another": (_with_pool(FreedUnderAnother), BlockPoolError, "reference counts are wrong"),
    "a holder that isn't counted": (
        _with_pool(UncountedHolder), AssertionError, "counts are wrong|nobody holds it|shared block is written",
    ),
    "a key that survives eviction": (_with_pool(KeyAfterEviction), BlockPoolError, "keys and blocks disagree"),
    "an adapter's blocks for everybody": (_with_cache(SaltIgnored), AssertionError, "stale cache"),
    "blocks lost on preemption": (LostOnPreemption, BlockPoolError, "reference counts are wrong"),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_and_named(bug: str) -> None:
    build, error, message = PLANTED[bug]

    class Planted(Traffic):
        def build(self, **limits: int) -> Scheduler:
            return build(**limits)

    search = settings(RUN, database=None, derandomize=True, phases=[Phase.generate], print_blob=False,
                      report_multiple_bugs=False, suppress_health_check=list(HealthCheck))  # fmt: skip
    with pytest.raises(error, match=message):
        run_state_machine_as_test(Planted, settings=search)
