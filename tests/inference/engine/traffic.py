"""Random traffic for the scheduler, the prefix cache and the block pool, with every rule checked after every step."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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


ALPHABET = st.integers(0, 1)  # few different tokens, so that prefixes often meet


class Traffic(RuleBasedStateMachine):
    """Random arrivals, cancels and steps. What each slot of the pool holds is kept beside, as a whole prefix.

    checks: how often the books were found in balance, over all runs of the class.
    """

    checks = 0

    def build(self, **limits) -> Scheduler:
        """The scheduler under test; a subclass plants its bug here."""
        return make_scheduler(**limits)

    @initialize(num_blocks=st.integers(3, 14), block_size=st.sampled_from([1, 2, 4]), max_num_seqs=st.integers(1, 5),
                budget=st.integers(5, 12))
    def start(self, num_blocks, block_size, max_num_seqs, budget):
        self.scheduler = self.build(num_blocks=num_blocks, block_size=block_size, max_num_seqs=max_num_seqs,
                                    max_num_batched_tokens=budget)
        self.slots: dict[int, tuple[bytes, tuple[int, ...]]] = {}  # salt and prefix
        self.requests: list[Request] = []
        self.arrivals = 0

    @rule(prompt=st.lists(ALPHABET, min_size=1, max_size=24), max_output=st.integers(1, 12), priority=st.integers(0, 1),
          salt=st.sampled_from([b"", b"adapter"]))
    def submit(self, prompt, max_output, priority, salt):
        prompt = prompt[:self.scheduler.capacity - 1] or [0]
        if len(prompt) + 1 > self.scheduler.capacity:
            return
        self.arrivals += 1
        most = min(max_output, self.scheduler.capacity - len(prompt))
        request = make_request(self.arrivals, prompt, max_output=most, priority=priority, salt=salt)
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
        self.balanced = False
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
            table, tokens, salt = chunk.request.block_table, chunk.request.token_ids, chunk.request.salt
            slots = [table[p // size] * size + p % size for p in range(chunk.start + chunk.count)]
            assert all(self.slots.get(slots[p]) == (salt, tuple(tokens[:p + 1])) for p in range(chunk.start)), \
                "stale cache"
            for p in range(chunk.start, chunk.start + chunk.count):
                assert slots[p] not in written, "a slot is written twice in a step"
                assert self.scheduler.pool._references[table[p // size]] == 1, "a shared block is written to"
                written.add(slots[p])
                self.slots[slots[p]] = (salt, tuple(tokens[:p + 1]))

    @invariant()
    def books_balance(self):
        if not hasattr(self, "scheduler"):
            return
        self.balanced = False
        self.scheduler.check_integrity()
        assert sorted(r.arrival for r in self.scheduler.running + self.scheduler.waiting) == \
            sorted(r.arrival for r in self.requests)
        self.balanced = True
        type(self).checks += 1

    def teardown(self):
        if not getattr(self, "balanced", False):
            return  # what was found is reported, not what follows from it
        for _ in range(3000):
            if not self.requests:
                break
            self.step(0)
            self.books_balance()
        assert not self.requests, "requests never ended"
        self.scheduler.check_integrity()
        assert self.scheduler.pool.num_held == 0
