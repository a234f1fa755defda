"""What each step computes: decodes first, then prefill chunks, under one token budget and one pool of KV blocks."""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from inference.engine.block_pool import BlockPool
from inference.engine.prefix_cache import PrefixCache
from inference.engine.request import Chunk, Request


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The chunks of one step, at most one a request, and the requests that lost their blocks for it."""

    chunks: list[Chunk]
    preempted: list[Request] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_rows for chunk in self.chunks)


class Scheduler:
    """Continuous batching. Call `schedule`, compute its plan, call `computed`, append tokens or `remove`, and repeat.

    Running requests are kept in order of (priority, arrival). A request is admitted when blocks for all of its tokens
    can be had and each running one could still take another block. When a decode finds no block, the running request
    that is last in order gives all of its blocks back and is computed again later (its output tokens stay).

    switch_length: a model may compute texts that are longer than this in another way (longrope); a request that grows
    past it is computed again from its start. shares_prefixes: whether blocks may be found again by other requests.
    on_release(block): called with the first block of a request that gives its blocks back.
    """

    def __init__(self, *, num_blocks: int, block_size: int, max_num_seqs: int, max_num_batched_tokens: int,
                 switch_length: int | None = None, shares_prefixes: bool = True,
                 on_release: Callable[[int], None] | None = None) -> None:
        if max_num_batched_tokens < max_num_seqs:
            raise ValueError("max_num_batched_tokens: must be at least max_num_seqs")
        self.pool = BlockPool(num_blocks)
        self.prefix_cache = PrefixCache(self.pool, block_size, enabled=shares_prefixes)
        self._on_release = on_release
        self.block_size = block_size
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.switch_length = switch_length
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.num_preemptions = 0

    @property
    def capacity(self) -> int:
        """Most tokens that one request can hold in the cache."""
        return self.pool.num_blocks * self.block_size

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request. The caller has checked that it fits: its tokens so far and one more within `capacity`."""
        assert len(request.token_ids) <= self.capacity, f"request {request.request_id} can never fit"
        request.phase = "waiting"
        request.past_switch = self._is_past_switch(request)
        insort(self.waiting, request, key=_order)

    def remove(self, request: Request, *, reusable: bool = True) -> None:
        """End a request in any phase and give its blocks back at once. reusable: the prefix cache may keep them."""
        queue = self.waiting if request.phase == "waiting" else self.running
        index = bisect_left(queue, request.order, key=_order)
        assert queue[index] is request, f"request {request.request_id} is not queued"
        del queue[index]
        if not reusable:
            for block in request.block_table:
                self.pool.forget(block)
        self._release(request)

    def schedule(self) -> StepPlan:
        """Choose the tokens of the next step and give them blocks."""
        for request in [r for r in self.running if self._is_past_switch(r) and not r.past_switch]:
            self.remove(request)
            request.block_keys.clear()
            self.add(request)
        chunks: list[Chunk] = []
        preempted: list[Request] = []
        budget = self.max_num_batched_tokens
        for request in [r for r in self.running if r.num_remaining == 1]:
            if request.phase == "waiting":  # preempted for one before it
                continue
            if self._grow(request, preempted):
                chunks.append(Chunk(request=request, start=request.num_computed, count=1))
                budget -= 1
        for request in self.running:
            if request.num_remaining > 1 and budget > 0:
                budget -= self._take_chunk(request, budget, chunks)
        while budget > 0 and not preempted and (admitted := self._admit()):
            budget -= self._take_chunk(admitted, budget, chunks)
        if all(chunk.wants_logits and chunk.count == 1 for chunk in chunks):
            chunks = self._with_drafts(chunks, budget)
        return StepPlan(chunks=chunks, preempted=preempted)

    def computed(self, plan: StepPlan) -> None:
        """Record that the plan's keys and values are in the cache; call before appending sampled tokens."""
        for chunk in plan.chunks:
            request = chunk.request
            assert request.num_computed == chunk.start, f"request {request.request_id} was computed out of order"
            request.num_computed += chunk.count
            request.phase = "decoding" if request.num_remaining == 0 else "prefill"
            self.prefix_cache.publish(request)

    def accepted(self, request: Request, count: int) -> None:
        """Record that the first `count` guesses of a request's draft were right; call after appending its tokens."""
        request.num_computed += count
        assert request.num_remaining == 1, f"request {request.request_id} accepted more guesses than it has tokens"
        self.prefix_cache.publish(request)

    def check_integrity(self) -> None:
        """Prove that no block is lost or used twice. Raises BlockPoolError."""
        self.pool.check_integrity(request.block_table for request in self.running)

    def _with_drafts(self, chunks: list[Chunk], budget: int) -> list[Chunk]:
        """Add guesses to a step of nothing but decodes, from budget and blocks that nobody else wants now."""
        drafted = []
        for chunk in chunks:
            request, draft = chunk.request, list[int]()
            if request.drafter is not None:
                most = min(budget, request.max_output - request.num_output - 1, self._room(request))
                if self.switch_length is not None and not request.past_switch:
                    most = min(most, self.switch_length - len(request.token_ids))
                draft = request.drafter.propose(request.token_ids, decodes=len(chunks), most=most)
                while len(request.block_table) < self._blocks_for(len(request.token_ids) + len(draft)):
                    request.block_table.append(self.pool.allocate())
            budget -= len(draft)
            drafted.append(replace(chunk, draft=tuple(draft)))
        return drafted

    def _is_past_switch(self, request: Request) -> bool:
        return self.switch_length is not None and len(request.token_ids) > self.switch_length

    def _room(self, request: Request) -> int:
        """Tokens that fit behind a request's last one, while every running request could still take a block."""
        spare = max(0, self.pool.num_available - len(self.running))
        return (len(request.block_table) + spare) * self.block_size - len(request.token_ids)

    def _take_chunk(self, request: Request, budget: int, chunks: list[Chunk]) -> int:
        count = min(request.num_remaining, budget)
        chunks.append(Chunk(request=request, start=request.num_computed, count=count))
        return count

    def _admit(self) -> Request | None:
        """Move the first waiting request to running, with blocks for all of its tokens, if it may."""
        if not self.waiting or len(self.running) >= self.max_num_seqs:
            return None
        request = self.waiting[0]
        shared = self.prefix_cache.match(request)
        fresh = self._blocks_for(len(request.token_ids)) - len(shared)
        taken = fresh + sum(self.pool.is_cached(block) for block in shared)
        if taken + len(self.running) > self.pool.num_available:
            return None
        for block in shared:
            self.pool.share(block)
        request.block_table.extend(shared)
        request.block_table.extend(self.pool.allocate() for _ in range(fresh))
        request.num_computed = len(shared) * self.block_size
        request.num_published = len(shared)
        if request.cached_tokens < 0:
            request.cached_tokens = min(request.num_computed, request.num_prompt)
        del self.waiting[0]
        request.phase = "prefill"
        insort(self.running, request, key=_order)
        return request

    def _grow(self, request: Request, preempted: list[Request]) -> bool:
        """Give a decode the block that its next token needs; False when the request itself had to be preempted."""
        while len(request.block_table) < self._blocks_for(request.num_computed + 1):
            if self.pool.num_available:
                request.block_table.append(self.pool.allocate())
                continue
            victim = self.running[-1]
            self._preempt(victim)
            preempted.append(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, request: Request) -> None:
        self.remove(request)
        request.preemptions += 1
        self.num_preemptions += 1
        self.add(request)

    def _release(self, request: Request) -> None:
        if request.block_table and self._on_release:
            self._on_release(request.block_table[0])
        for block in reversed(request.block_table):  # the end of a prefix is less likely to be wanted than its start
            self.pool.release(block)
        del request.block_table[:]
        request.num_computed = 0
        request.num_published = 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)


def _order(request: Request) -> tuple[int, int]:
    return request.order
