"""Which tokens each step computes, and in which blocks: rules by example."""

import pytest

from inference.engine.block_pool import BlockPool, BlockPoolError
from inference.engine.scheduler import Scheduler, StepPlan
from tests.inference.engine.traffic import make_request, make_scheduler


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
