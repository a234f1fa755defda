"""A request inside the engine: what may enter, how its next token is drawn, which text that shows and what ends it."""

from collections.abc import Sequence
from dataclasses import dataclass

from inference.engine.batch import Draw, Float32, drawn_id
from inference.engine.constraints import ConstraintState
from inference.engine.detokenizer import Detokenizer
from inference.engine.logprobs import token_logprobs
from inference.engine.penalties import LogitsAdjuster
from inference.engine.request import Chunk, Request
from inference.engine.sampler import sample
from inference.protocol import FinishReason, Submit, Timings, TokenLogprobs
from inference.spec import SpecError


@dataclass(frozen=True, kw_only=True)
class ActiveRequest:
    """A request, the text of its tokens, what changes its logits, and the ids that end it.

    vocab_size: one past the last id that may be drawn.
    """

    request: Request
    text: Detokenizer
    adjust: LogitsAdjuster
    end_ids: frozenset[int]
    vocab_size: int
    constraint: ConstraintState | None

    def follow(self, token_id: int) -> None:
        """Go on in the constraint with the next output token. Raises ConstraintError when it doesn't fit."""
        if self.constraint is not None and token_id not in self.end_ids:
            self.constraint.accept(token_id)

    def plain_draw(self) -> Draw | None:
        """Return how the next token is drawn, when nothing but its logits and the sampling parameters count."""
        request = self.request
        plain = self.constraint is None and request.params.logprobs is None and not request.scores_prompt
        if plain and self.adjust.changes_nothing(request.token_ids):
            return Draw(request.params, request.num_output + 1)
        return None

    def draw(self, logits: Float32, *, now: float) -> tuple[int, list[TokenLogprobs]]:
        """Sample the next token from its row [vocabulary], score it if that is wanted, and append it.

        logits: or, as an array without axes, what the device has drawn (then `plain_draw` said how).
        Raises BadLogitsError or ConstraintError; then nothing was appended.
        """
        request, count = self.request, self.request.params.logprobs
        if logits.ndim == 0:
            token_id = drawn_id(int(logits))
        else:
            adjusted = self.adjust(logits[:self.vocab_size], request.token_ids)
            if self.constraint is not None:
                adjusted = self.constraint.allow(adjusted)
            token_id = sample(adjusted, request.params, request.num_output + 1)
        scored = [token_logprobs(logits, token_id, count)] if count is not None else []
        self.follow(token_id)
        request.token_ids.append(token_id)
        request.last_token_at = now
        if request.first_token_at < 0:
            request.first_token_at = now
        return token_id, scored

    def accept(self, token_id: int, index: int) -> tuple[str, FinishReason | None]:
        """Add the index-th output token to the text; return what it shows, and why the request ends if it does."""
        is_whole = self.constraint is not None and self.constraint.complete
        is_end, is_full = token_id in self.end_ids, index >= self.request.max_output
        params = self.request.params
        text = self.text.push(token_id, silent=is_end and not params.include_stop, last=is_end or is_whole or is_full,
                              may_stop=index > params.min_tokens)
        if is_end or is_whole or self.text.stopped:
            return text, "stop"
        return text, "length" if is_full else None

    def timings(self, now: float) -> Timings:
        """Seconds of each phase; a phase that was cut short lasted until now, one that never began 0."""
        request = self.request
        scheduled = request.scheduled_at if request.scheduled_at >= 0 else now
        first = request.first_token_at if request.first_token_at >= 0 else now
        last = request.last_token_at if request.last_token_at >= 0 else first
        return Timings(
            queue_s=scheduled - request.submitted_at, prefill_s=max(0.0, first - scheduled), decode_s=last - first,
            prompt_tokens=request.num_prompt, cached_tokens=max(0, request.cached_tokens),
            output_tokens=request.num_output,
        )


def check_submit(submit: Submit, *, vocab_size: int, max_model_len: int, capacity: int) -> None:
    """Refuse what can never be served. capacity: tokens that the whole cache holds. Raises SpecError."""
    if not submit.prompt_ids:
        raise SpecError("prompt_ids", "the prompt is empty")
    _check_ids("prompt_ids", submit.prompt_ids, vocab_size)
    _check_ids("output_ids", submit.output_ids, vocab_size)
    _check_ids("stop_token_ids", submit.params.stop_token_ids, vocab_size)
    _check_ids("logit_bias", [token_id for token_id, _ in submit.params.logit_bias], vocab_size)
    length = len(submit.prompt_ids)
    if length + 1 > max_model_len:
        raise SpecError("prompt_ids", f"the prompt has {length} tokens, but prompt and reply together may have "
                                      f"at most {max_model_len}")
    if length + 1 > capacity:
        raise SpecError("prompt_ids", f"the prompt has {length} tokens, but the cache holds only "
                                      f"{capacity}, the reply included")


def _check_ids(field: str, ids: Sequence[int], vocab_size: int) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        wrong = next(i for i in ids if not 0 <= i < vocab_size)
        raise SpecError(field, f"token id {wrong} is outside the vocabulary, 0 to {vocab_size - 1}")


def score_prompt(chunk: Chunk, logits: Float32) -> list[TokenLogprobs]:
    """Score the prompt tokens that follow the ones with logits [rows, vocabulary]. Raises BadLogitsError."""
    request, count = chunk.request, chunk.request.params.prompt_logprobs
    assert count is not None, "only a request that asks for it scores its prompt"
    following = request.token_ids[request.num_scored:min(request.num_scored + len(logits), request.num_prompt)]
    request.num_scored += len(following)
    return [token_logprobs(row, token_id, count) for row, token_id in zip(logits, following, strict=False)]
