"""Which tokens each step computes, and in which blocks: rules by example, and invariants under random traffic."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inference.engine.block_pool import BlockPool, BlockPoolError
from inference.engine.request import Request
from inference.engine.scheduler import Scheduler, StepPlan
from inference.spec import SamplingParams


def make_scheduler(*, num_blocks: int = 32, block_size: int = 4, max_num_seqs: int = 4,
                   max_num_batched_tokens: int = 16) -> Scheduler:
    return Scheduler(num_blocks=num_blocks, block_size=block_size, max_num_seqs=max_num_seqs,
                     max_num_batched_tokens=max_num_batched_tokens)


def make_request(arrival: int, prompt: list[int] | int, *, max_output: int = 8, priority: int = 0,
                 salt: bytes = b"") -> Request:
    tokens = [1000 * arrival + i for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
    return Request(request_id=str(arrival), num_prompt=len(tokens), token_ids=tokens, arrival=arrival,
                   priority=priority, params=SamplingParams(max_tokens=max_output), max_output=max_output, salt=salt)


def run_step(scheduler: Scheduler) -> StepPlan:
    """One step with the token 7 drawn wherever there are logits."""
    plan = scheduler.schedule()
    sampled = [chunk.request for chunk in plan.chunks if chunk.wants_logits]
    scheduler.computed(plan)
    for request in sampled:
        request.token_ids.append(7)
    scheduler.check_integrity()
    return plan


def shape(plan: StepPlan) -> list[tuple[str, int, int]]:
    return [(chunk.request.request_id, chunk.start, chunk.count) for chunk in plan.chunks]


def test_decodes_come_first_and_a_prefill_gets_the_rest_of_the_budget():
    scheduler = make_scheduler()
    scheduler.add(make_request(1, 3))
    assert shape(run_step(scheduler)) == [("1", 0, 3)]
    scheduler.add(make_request(2, 40))
    assert shape(run_step(scheduler)) == [("1", 3, 1), ("2", 0, 15)]
    assert shape(run_step(scheduler)) == [("1", 4, 1), ("2", 15, 15)]
    assert shape(run_step(scheduler)) == [("1", 5, 1), ("2", 30, 10)]
    assert shape(run_step(scheduler)) == [("1", 6, 1), ("2", 40, 1)]


def test_several_prompts_share_a_step():
    scheduler = make_scheduler()
    for arrival in (1, 2, 3):
        scheduler.add(make_request(arrival, 6))
    assert shape(run_step(scheduler)) == [("1", 0, 6), ("2", 0, 6), ("3", 0, 4)]


def test_a_lower_priority_number_runs_first_and_equal_ones_in_order_of_arrival():
    scheduler = make_scheduler(max_num_seqs=1)
    requests = [make_request(1, 3, priority=1), make_request(2, 3), make_request(3, 3)]
    for request in requests:
        scheduler.add(request)
    order = []
    while scheduler.has_work:
        (chunk,) = run_step(scheduler).chunks
        order.append(chunk.request.request_id)
        scheduler.remove(chunk.request)
    assert order == ["2", "3", "1"]


def test_no_more_requests_run_than_allowed():
    scheduler = make_scheduler(max_num_seqs=2)
    for arrival in range(1, 5):
        scheduler.add(make_request(arrival, 2))
    assert len(run_step(scheduler).chunks) == 2
    assert len(scheduler.waiting) == 2


def test_a_request_waits_until_its_blocks_are_free():
    scheduler = make_scheduler(num_blocks=8)
    first, second = make_request(1, 20), make_request(2, 16)
    scheduler.add(first)
    scheduler.add(second)
    run_step(scheduler)
    run_step(scheduler)
    assert second.phase == "waiting"
    scheduler.remove(first)
    run_step(scheduler)
    assert second.phase == "decoding"


def test_the_newest_is_preempted_and_keeps_its_tokens():
    scheduler = make_scheduler(num_blocks=4, max_num_seqs=2)
    old, new = make_request(1, 4, max_output=9), make_request(2, 4, max_output=9)
    scheduler.add(old)
    scheduler.add(new)
    for _ in range(5):
        run_step(scheduler)
    assert (old.num_output, new.num_output) == (5, 5)
    plan = run_step(scheduler)  # both want a third block, and there is none
    assert shape(plan) == [("1", 8, 1)]
    assert plan.preempted == [new]
    assert (new.phase, new.num_output, len(new.block_table)) == ("waiting", 5, 0)
    scheduler.remove(old)
    plan = run_step(scheduler)
    assert [chunk.request for chunk in plan.chunks] == [new]
    assert plan.chunks[0].start + plan.chunks[0].count == 9  # prompt and output again
    assert new.num_output == 6


def test_a_background_request_is_preempted_before_an_older_interactive_one():
    scheduler = make_scheduler(num_blocks=4, max_num_seqs=2)
    background, interactive = make_request(1, 4, priority=1), make_request(2, 4)
    scheduler.add(background)
    scheduler.add(interactive)
    while not scheduler.num_preemptions:
        run_step(scheduler)
    assert background.phase == "waiting"
    assert interactive.phase == "decoding"


def test_a_repeated_prompt_takes_its_full_blocks_from_the_cache():
    scheduler = make_scheduler()
    first, second = make_request(1, range(10)), make_request(2, range(10))
    scheduler.add(first)
    run_step(scheduler)
    scheduler.add(second)
    assert shape(run_step(scheduler)) == [("1", 10, 1), ("2", 8, 2)]
    assert second.cached_tokens == 8
    assert second.block_table[:2] == first.block_table[:2]
    assert second.block_table[2] != first.block_table[2]


def test_at_least_the_last_token_is_computed():
    scheduler = make_scheduler()
    first = make_request(1, range(8))
    scheduler.add(first)
    run_step(scheduler)
    scheduler.remove(first)
    scheduler.add(make_request(2, range(8)))
    assert shape(run_step(scheduler)) == [("2", 4, 4)]


def test_another_salt_shares_nothing():
    scheduler = make_scheduler()
    first = make_request(1, range(10), salt=b"adapter 1")
    scheduler.add(first)
    run_step(scheduler)
    scheduler.remove(first)
    scheduler.add(make_request(2, range(10), salt=b"adapter 2"))
    assert shape(run_step(scheduler)) == [("2", 0, 10)]


def test_blocks_that_cannot_be_trusted_are_not_found_again():
    scheduler = make_scheduler()
    first = make_request(1, range(10))
    scheduler.add(first)
    run_step(scheduler)
    scheduler.remove(first, reusable=False)
    scheduler.check_integrity()
    scheduler.add(make_request(2, range(10)))
    assert shape(run_step(scheduler)) == [("2", 0, 10)]


def test_a_prefix_survives_until_its_blocks_are_needed():
    scheduler = make_scheduler(num_blocks=6)
    for arrival, tokens in ((1, range(8)), (2, range(100, 108))):
        request = make_request(arrival, tokens)
        scheduler.add(request)
        run_step(scheduler)
        scheduler.remove(request)
    assert (scheduler.pool.num_cached, scheduler.pool.num_free) == (4, 2)
    large = make_request(3, 12)
    scheduler.add(large)
    run_step(scheduler)
    scheduler.remove(large)
    again = make_request(4, range(100, 108))  # the least recently used went first: those of request 1
    scheduler.add(again)
    run_step(scheduler)
    assert again.cached_tokens == 4


ALPHABET = st.integers(0, 1)  # few different tokens, so that prefixes often meet


class Traffic(RuleBasedStateMachine):
    """Random arrivals, cancels and steps. What each slot of the pool holds is kept beside, as a whole prefix."""

    @initialize(num_blocks=st.integers(3, 14), block_size=st.sampled_from([1, 2, 4]), max_num_seqs=st.integers(1, 5),
                budget=st.integers(5, 12))
    def start(self, num_blocks, block_size, max_num_seqs, budget):
        self.scheduler = make_scheduler(num_blocks=num_blocks, block_size=block_size, max_num_seqs=max_num_seqs,
                                        max_num_batched_tokens=budget)
        self.slots: dict[int, tuple[int, ...]] = {}
        self.requests: list[Request] = []
        self.arrivals = 0

    @rule(prompt=st.lists(ALPHABET, min_size=1, max_size=24), max_output=st.integers(1, 12), priority=st.integers(0, 1))
    def submit(self, prompt, max_output, priority):
        prompt = prompt[:self.scheduler.capacity - 1] or [0]
        if len(prompt) + 1 > self.scheduler.capacity:
            return
        self.arrivals += 1
        most = min(max_output, self.scheduler.capacity - len(prompt))
        request = make_request(self.arrivals, prompt, max_output=most, priority=priority)
        self.requests.append(request)
        self.scheduler.add(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data):
        request = data.draw(st.sampled_from(self.requests))
        self.scheduler.remove(request, reusable=data.draw(st.booleans()))
        self.requests.remove(request)

    @rule(token=ALPHABET)
    def step(self, token):
        decoding = [request for request in self.scheduler.running if request.num_remaining == 1]
        plan = self.scheduler.schedule()
        assert plan.num_tokens <= self.scheduler.max_num_batched_tokens
        assert len(self.scheduler.running) <= self.scheduler.max_num_seqs
        assert len({chunk.request.request_id for chunk in plan.chunks}) == len(plan.chunks)
        assert plan.chunks or not self.requests, "there is work, but the step computes nothing"
        computed = {chunk.request.request_id for chunk in plan.chunks}
        assert all(r.request_id in computed or r in plan.preempted for r in decoding), "a decode was left out"
        assert all(r not in plan.preempted for r in self.requests if r.order == min(q.order for q in self.requests))
        self._compute(plan)
        sampled = [chunk.request for chunk in plan.chunks if chunk.wants_logits]
        self.scheduler.computed(plan)
        for request in sampled:
            request.token_ids.append(token)
            if request.num_output >= request.max_output:
                self.scheduler.remove(request)
                self.requests.remove(request)

    def _compute(self, plan: StepPlan) -> None:
        size = self.scheduler.block_size
        written = set()
        for chunk in plan.chunks:
            table, tokens = chunk.request.block_table, chunk.request.token_ids
            slots = [table[p // size] * size + p % size for p in range(chunk.start + chunk.count)]
            assert all(self.slots[slots[p]] == tuple(tokens[:p + 1]) for p in range(chunk.start)), "stale cache"
            for p in range(chunk.start, chunk.start + chunk.count):
                assert slots[p] not in written, "a slot is written twice in a step"
                assert self.scheduler.pool._references[table[p // size]] == 1, "a shared block is written to"
                written.add(slots[p])
                self.slots[slots[p]] = tuple(tokens[:p + 1])

    @invariant()
    def books_balance(self):
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.check_integrity()
        assert sorted(r.arrival for r in self.scheduler.running + self.scheduler.waiting) == \
            sorted(r.arrival for r in self.requests)

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        for _ in range(3000):
            if not self.requests:
                break
            self.step(0)
        assert not self.requests, "requests never ended"
        self.scheduler.check_integrity()
        assert self.scheduler.pool.num_held == 0


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def test_the_integrity_check_sees_planted_bugs():
    scheduler = make_scheduler()
    scheduler.add(make_request(1, 10))
    run_step(scheduler)
    block = scheduler.running[0].block_table.pop()
    with pytest.raises(BlockPoolError, match="counts are wrong"):
        scheduler.check_integrity()  # nobody's table has it, and yet it isn't free
    scheduler.running[0].block_table.append(block)
    scheduler.pool._free.append(block)
    with pytest.raises(BlockPoolError, match="two states"):
        scheduler.check_integrity()
    pool = BlockPool(4)
    pool._free.pop()
    with pytest.raises(BlockPoolError, match="lost"):
        pool.check_integrity([])
