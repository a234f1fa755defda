"""One request as the scheduler sees it: its tokens, the blocks it holds and how far its cache has been computed."""

from array import array
from dataclasses import dataclass, field

from inference.engine.speculation import NgramDrafter
from inference.protocol import FinishReason, RequestPhase
from inference.spec import SamplingParams


@dataclass(eq=False, kw_only=True)
class Request:
    """Tokens and cache state of one request. Only the scheduler changes blocks, computed counts and phase.

    token_ids: the prompt, then every output token. max_output: most output tokens, the context already taken into
    account. arrival: order of submission, which also breaks ties of priority. block_table: blocks in order, int32.
    block_keys: chained prefix-cache keys of its full blocks, as far as they have been hashed.
    num_computed: tokens whose keys and values are in the cache. num_scored: prompt tokens whose log-probability has
    been told or isn't wanted (the first has none). cached_tokens: how many of the prompt came from the
    prefix cache at the first admission. drafter: guesses its next tokens; None doesn't speculate. past_switch: it is
    long enough to be computed in the model's other way (Scheduler.switch_length), which shares no blocks with the
    first. adapter: the number that the model knows its adapter by, 0 for none; the adapter's content is in the salt.
    Times are in seconds of the engine's clock; -1 is not yet.
    """

    request_id: str
    num_prompt: int
    token_ids: list[int]
    params: SamplingParams
    max_output: int
    arrival: int
    priority: int = 0
    salt: bytes = b""

    phase: RequestPhase = "waiting"
    num_computed: int = 0
    num_scored: int = -1
    block_table: "array[int]" = field(default_factory=lambda: array("i"))
    block_keys: list[bytes] = field(default_factory=list)
    num_published: int = 0
    cached_tokens: int = -1
    preemptions: int = 0
    finish_reason: FinishReason | None = None
    drafter: NgramDrafter | None = None
    past_switch: bool = False
    adapter: int = 0

    submitted_at: float = -1.0
    scheduled_at: float = -1.0
    first_token_at: float = -1.0
    last_token_at: float = -1.0

    def __post_init__(self) -> None:
        if self.num_scored < 0:
            resumed = len(self.token_ids) > self.num_prompt
            self.num_scored = self.num_prompt if self.params.prompt_logprobs is None or resumed else 1

    @property
    def scores_prompt(self) -> bool:
        """Whether prompt tokens still have to be scored, so that their logits are needed and not just their cache."""
        return self.num_scored < self.num_prompt

    @property
    def num_output(self) -> int:
        """Output tokens so far: the index of the last one."""
        return len(self.token_ids) - self.num_prompt

    @property
    def num_remaining(self) -> int:
        """Tokens that must still be computed before the next one can be sampled; 1 in plain decoding."""
        return len(self.token_ids) - self.num_computed

    @property
    def order(self) -> tuple[int, int]:
        """Lower runs first and is preempted last."""
        return (self.priority, self.arrival)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Part of one step: tokens start … start + count - 1 of a request; with logits when they reach its last token.

    draft: guesses of the tokens after these, computed in the same step; each has logits of its own.
    """

    request: Request
    start: int
    count: int
    draft: tuple[int, ...] = ()

    @property
    def wants_logits(self) -> bool:
        return self.start + self.count == len(self.request.token_ids)

    @property
    def num_rows(self) -> int:
        """Tokens that the step computes for it."""
        return self.count + len(self.draft)

    @property
    def num_logits(self) -> int:
        """Its rows that have logits, the last ones: of the last token, of guesses, of prompt tokens to be scored."""
        first = max(self.start, self.request.num_scored - 1)  # its logits score the token after it
        if first < self.request.num_prompt - 1:
            return max(0, self.start + self.count - first)
        return 1 + len(self.draft) if self.wants_logits else 0
