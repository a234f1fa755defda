"""The engine's loop: takes requests, runs one step at a time and says what each step brought for whom."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import numpy.typing as npt

from inference.engine.active import ActiveRequest, check_submit, score_prompt
from inference.engine.adapters import NamedAdapters
from inference.engine.batch import Float32, ModelRunner, build_batch
from inference.engine.constraints import ConstraintError, Constraints
from inference.engine.detokenizer import Detokenizer, TokenText
from inference.engine.penalties import LogitsAdjuster
from inference.engine.request import Chunk, Request
from inference.engine.sampler import BadLogitsError
from inference.engine.scheduler import Scheduler, StepPlan
from inference.engine.speculation import NgramDrafter
from inference.protocol import FinishReason, SequenceDelta, Stats, StepOutput, Submit, TokenLogprobs
from inference.spec import SpecError

logger = logging.getLogger(__name__)


class EngineLoop:
    """Runs requests on a model. One thread calls it.

    text: the model's tokenizer; ids it doesn't know are never drawn. eos_token_ids: ids that end every reply.
    max_model_len: most tokens of prompt and reply together. speculation: verify guesses of several tokens in a
    step where that pays, which changes no reply. constraints: those of these tokens, where they have been prepared.
    clock: seconds, for timings.
    """

    def __init__(self, *, runner: ModelRunner, scheduler: Scheduler, text: TokenText, eos_token_ids: Collection[int],
                 max_model_len: int, speculation: bool = False, constraints: Constraints | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._text = text
        self._eos = frozenset(eos_token_ids)
        self._max_model_len = max_model_len
        self._speculation = speculation
        self._constraints = constraints or Constraints(text.tokenizer, vocabulary=text.vocab_size,
                                                       end_ids=self._eos)
        self.adapters = NamedAdapters(runner)
        self._clock = clock
        self._active: dict[str, ActiveRequest] = {}
        self._endings: list[SequenceDelta] = []  # ends that came between steps
        self._arrivals = 0
        self._steps = self._prompt_tokens = self._output_tokens = 0

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to compute or to report."""
        return self.scheduler.has_work or bool(self._endings)

    def submit(self, submit: Submit) -> None:
        """Queue a request.

        max_tokens past the context is lowered to what fits; such a reply ends with `length`. Output tokens of an
        earlier run (output_ids) are replayed through the text without being told again.
        Raises SpecError with the field and the reason; then nothing was queued.
        """
        if submit.request_id in self._active:
            raise SpecError("request_id", f"{submit.request_id} is already running")
        check_submit(submit, vocab_size=self._runner.vocab_size, max_model_len=self._max_model_len,
                     capacity=self.scheduler.capacity)
        self._arrivals += 1
        num_prompt, most = len(submit.prompt_ids), min(self._max_model_len, self.scheduler.capacity)
        request = Request(
            request_id=submit.request_id, num_prompt=num_prompt, token_ids=submit.prompt_ids + submit.output_ids,
            params=submit.params, max_output=min(submit.params.max_tokens, most - num_prompt),
            arrival=self._arrivals, priority=submit.priority, submitted_at=self._clock(),
            drafter=NgramDrafter() if self._speculation else None,
        )
        active = self._activate(request)
        if submit.adapter:
            adapter = self.adapters.take(submit.adapter)
            request.adapter, request.salt = adapter.number, adapter.digest
        self._active[submit.request_id] = active
        for index, token_id in enumerate(submit.output_ids, start=1):
            try:
                active.follow(token_id)
            except ConstraintError as error:
                del self._active[submit.request_id]
                self.adapters.give_back(request.adapter)
                raise SpecError("output_ids", f"token {index} does not fit the constraint: {error}") from None
            _, reason = active.accept(token_id, index)
            if reason:  # everything had been produced, and only its end was not heard of
                self._endings.append(self._ending(active, reason))
                return
        self.scheduler.add(request)

    def _activate(self, request: Request) -> ActiveRequest:
        params = request.params
        end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos)
        adjust = LogitsAdjuster(params, num_prompt=request.num_prompt, end_ids=end_ids,
                                vocabulary=self._text.vocab_size)
        text = Detokenizer(self._text, params.stop, prompt_ids=request.token_ids[:request.num_prompt],
                           include_stop=params.include_stop, skip_special_tokens=params.skip_special_tokens)
        constraint = self._constraints.start(params.constraint) if params.constraint is not None else None
        return ActiveRequest(request=request, text=text, adjust=adjust, end_ids=end_ids,
                             vocab_size=self._text.vocab_size, constraint=constraint)

    def cancel(self, request_id: str) -> None:
        """End a request and free its blocks now; the next step reports it. Unknown ids are ignored."""
        active = self._active.get(request_id)
        if active is not None:
            self.scheduler.remove(active.request)
            self._endings.append(self._ending(active, "cancelled", tail=active.text.finish()))

    def step(self) -> StepOutput:
        """Run one step. The output has at most one delta a request, in the order of the batch."""
        deltas, self._endings = self._endings, []
        plan = self.scheduler.schedule()
        deltas += [_phase_delta(request) for request in plan.preempted]
        if plan.chunks:
            self._steps += 1
            deltas += self._run(plan)
        return StepOutput(deltas=deltas)

    def stats(self, request_key: int = 0, *, experts: bool = False) -> Stats:
        """Counts now, and totals since the start. experts: with the load of each expert."""
        pool, counts = self.scheduler.pool, self._runner.expert_counts if experts else None
        return Stats(
            request_key=request_key, running=len(self.scheduler.running), waiting=len(self.scheduler.waiting),
            free_blocks=pool.num_free, cached_blocks=pool.num_cached, held_blocks=pool.num_held,
            total_blocks=pool.num_blocks, steps=self._steps, prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens, preemptions=self.scheduler.num_preemptions,
            experts=counts.load() if counts is not None else None,
        )

    def _run(self, plan: StepPlan) -> list[SequenceDelta]:
        """Compute a plan's chunks and sample where a chunk reached the end of its tokens."""
        now = self._clock()
        for chunk in plan.chunks:
            if chunk.request.scheduled_at < 0:
                chunk.request.scheduled_at = now
            self._prompt_tokens += max(0, min(chunk.request.num_prompt - chunk.start, chunk.count))
        try:
            logits = self._compute(plan)
        except Exception as error:  # whatever the model raises ends these requests, not the engine
            logger.exception("A step of %d tokens failed", plan.num_tokens)
            return [self._fail(chunk.request, f"the model failed: {error}") for chunk in plan.chunks]
        self.scheduler.computed(plan)
        deltas, row = [], 0
        for chunk in plan.chunks:
            rows = logits[row:row + chunk.num_logits]
            row += len(rows)
            deltas.append(self._report(chunk, rows))
        return deltas

    def _compute(self, plan: StepPlan) -> npt.NDArray[Any]:
        """Return the logits of a plan's rows, [rows, vocabulary], or what the runner has drawn from them, [rows]."""
        batch, drawer = build_batch(plan.chunks, self.scheduler.block_size), getattr(self._runner, "drawer", None)
        if drawer is not None:
            wanted = [chunk for chunk in plan.chunks if chunk.num_logits]
            draws = [self._active[chunk.request.request_id].plain_draw() for chunk in wanted if not chunk.draft]
            if all(draws) and len(draws) == len(wanted) > 0:
                ids: npt.NDArray[Any] = drawer.draw(batch, draws, vocab_size=self._text.vocab_size)
                return ids
        return self._runner.forward(batch)

    def _report(self, chunk: Chunk, logits: Float32) -> SequenceDelta:
        """What a chunk's logits bring: scores of prompt tokens, and new tokens where it reached the end.

        logits: [num_logits, vocabulary].
        """
        try:
            scored = score_prompt(chunk, logits) if chunk.request.scores_prompt else []
        except BadLogitsError as error:
            return self._fail(chunk.request, f"the prompt could not be scored: {error}")
        if chunk.wants_logits:
            delta = self._advance(chunk, logits[len(logits) - 1 - len(chunk.draft):])
        else:
            delta = _phase_delta(chunk.request)
        return msgspec.structs.replace(delta, prompt_logprobs=scored) if scored else delta

    def _advance(self, chunk: Chunk, logits: Float32) -> SequenceDelta:
        """Sample a request's next token from its first row, and from each further row while the draft was right.

        logits: [1 + draft, vocabulary]. Reports the tokens, and the end if one of them is it.
        """
        request, active = chunk.request, self._active[chunk.request.request_id]
        token_ids: list[int] = []
        texts: list[str] = []
        logprobs: list[TokenLogprobs] = []
        for row, guess in zip(logits, (*chunk.draft, None), strict=True):
            try:
                token_id, scored = active.draw(row, now=self._clock())
            except (BadLogitsError, ConstraintError) as error:
                reason = f"no token could be chosen: {error}"
                return self._fail(request, reason, token_ids=token_ids, texts=texts,
                                  logprobs=logprobs)
            self._output_tokens += 1
            text, end = active.accept(token_id, request.num_output)
            token_ids.append(token_id)
            texts.append(text)
            logprobs += scored
            if end or token_id != guess:
                break
        if request.drafter is not None:
            request.drafter.observe(token_ids)
            self.scheduler.accepted(request, len(token_ids) - 1)
        if end is None:
            return SequenceDelta(request_id=request.request_id, index=request.num_output, token_ids=token_ids,
                                 texts=texts, logprobs=logprobs)
        self.scheduler.remove(request)
        return self._ending(active, end, token_ids=token_ids, texts=texts, logprobs=logprobs)

    def _fail(self, request: Request, reason: str, *, token_ids: Sequence[int] = (),
              texts: Sequence[str] = (), logprobs: Sequence[TokenLogprobs] = ()) -> SequenceDelta:
        """End a request whose cache can't be trusted, so that nobody reuses it."""
        self.scheduler.remove(request, reusable=False)
        active = self._active[request.request_id]
        return self._ending(active, "failed", token_ids=token_ids, texts=texts, tail=active.text.finish(),
                            error=reason, logprobs=logprobs)

    def _ending(self, active: ActiveRequest, reason: FinishReason, *, token_ids: Sequence[int] = (),
                texts: Sequence[str] = (), tail: str = "", error: str = "",
                logprobs: Sequence[TokenLogprobs] = ()) -> SequenceDelta:
        request = active.request
        del self._active[request.request_id]
        self.adapters.give_back(request.adapter)
        return SequenceDelta(
            request_id=request.request_id, index=request.num_output, token_ids=list(token_ids), texts=list(texts),
            phase=request.phase, finish_reason=reason, tail=tail, error=error,
            timings=active.timings(self._clock()), logprobs=list(logprobs),
        )


def _phase_delta(request: Request) -> SequenceDelta:
    return SequenceDelta(request_id=request.request_id, index=request.num_output, phase=request.phase,
                         prefill_done=min(request.num_computed, request.num_prompt))
