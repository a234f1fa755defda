"""A small stand-in for a model, for tests of what is around one: its logits depend on every token of the context.

It keeps token ids and positions in its KV pool and reads them back by block table, so a wrong block, slot, position
or order changes the logits or fails at once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from inference.engine.batch import Float32, StepBatch
from inference.engine.detokenizer import TokenText
from inference.engine.loading import LoadedEngine
from inference.engine.loop import EngineLoop
from inference.engine.scheduler import Scheduler
from inference.protocol import StepOutput, Submit
from inference.spec import EngineConfig, SamplingParams

END = 256  # the id of <|end|>, which ends replies
LETTERS = 6  # what LoopingRunner writes with
VOCABULARY = 272  # rows of the embedding; ids from 257 on are unknown to the tokenizer
NAN_TOKEN = 270  # a context that begins with it gives NaN logits
CRASH_TOKEN = 271  # a batch with it raises


def byte_tokenizer() -> Tokenizer:
    """256 tokens, one a byte, and <|end|>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


class ContextRunner:
    """Logits are pseudo-random numbers seeded by a hash of the whole context. See engine/batch.py: ModelRunner."""

    vocab_size = VOCABULARY

    def __init__(self, *, num_blocks: int, block_size: int, step_s: float = 0.0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.step_s = step_s
        self._pool = np.full((num_blocks * block_size, 2), -1)  # token id and position of each slot
        self.tokens_computed = 0

    def forward(self, batch: StepBatch) -> Float32:
        assert len(set(batch.slots.tolist())) == len(batch.slots), "a slot is written twice in one step"
        if CRASH_TOKEN in batch.token_ids:
            raise RuntimeError("planted")
        time.sleep(self.step_s)
        self.tokens_computed += len(batch.token_ids)
        self._pool[batch.slots] = np.stack([batch.token_ids, batch.positions], axis=1)
        rows = [self._row(batch, int(row)) for row in batch.logit_rows]
        return np.stack(rows) if rows else np.empty((0, self.vocab_size), dtype=np.float32)

    def _row(self, batch: StepBatch, row: int) -> Float32:
        sequence = int(np.searchsorted(batch.query_starts, row, side="right")) - 1
        positions = np.arange(batch.positions[row] + 1)
        slots = batch.block_tables[sequence][positions // self.block_size] * self.block_size
        context = self._pool[slots + positions % self.block_size]
        assert (context[:, 1] == positions).all(), "the cache holds other positions than the block table says"
        return self.logits(context[:, 0].tolist())

    def logits(self, context: list[int]) -> Float32:
        return context_logits(context)


def context_logits(context: list[int]) -> Float32:
    """What the model says after a context, without any cache: the slow twin."""
    if context[0] == NAN_TOKEN:
        return np.full(VOCABULARY, np.nan, dtype=np.float32)
    digest = blake2b(np.array(context, dtype=np.int32).tobytes(), digest_size=8).digest()
    logits = np.random.default_rng(int.from_bytes(digest)).standard_normal(VOCABULARY).astype(np.float32) * 3
    logits[END + 1:] = 1e6  # must never be drawn
    return logits


@dataclass
class Reply:
    """What a request's deltas said, put together."""

    token_ids: list[int]
    texts: list[str]
    text: str = ""
    finish_reason: str | None = None
    error: str = ""
    ends: int = 0


class LoopingRunner(ContextRunner):
    """A model that knows only a few letters and the last two tokens, so that it repeats itself."""

    def logits(self, context: list[int]) -> Float32:
        return looping_logits(context)


def looping_logits(context: list[int]) -> Float32:
    """The slow twin of LoopingRunner."""
    logits = context_logits(context if context[0] == NAN_TOKEN else context[-2:])
    logits[LETTERS:END] = -50
    logits[END] -= 3
    return logits


class Harness:
    """A loop over a ContextRunner that collects replies and checks the books after every step."""

    def __init__(self, *, num_blocks: int = 64, block_size: int = 4, max_num_seqs: int = 8,
                 max_num_batched_tokens: int = 16, max_model_len: int = 200,
                 clock: Callable[[], float] = time.monotonic, runner: type[ContextRunner] = ContextRunner,
                 speculation: bool = False) -> None:
        tokenizer = byte_tokenizer()
        self.runner = runner(num_blocks=num_blocks, block_size=block_size)
        self.scheduler = Scheduler(num_blocks=num_blocks, block_size=block_size, max_num_seqs=max_num_seqs,
                                   max_num_batched_tokens=max_num_batched_tokens)
        self.loop = EngineLoop(runner=self.runner, scheduler=self.scheduler, text=TokenText(tokenizer, [END]),
                               eos_token_ids=[END], max_model_len=max_model_len, clock=clock, speculation=speculation)
        self.tokenizer = tokenizer
        self.replies: dict[str, Reply] = {}
        self.outputs: list[StepOutput] = []

    def submit(self, name: str, prompt: list[int], params: SamplingParams, *, output_ids: list[int] | None = None,
               priority: int = 0) -> None:
        self.loop.submit(Submit(request_id=name, prompt_ids=prompt, params=params, output_ids=output_ids or [],
                                priority=priority))
        self.replies[name] = Reply(token_ids=list(output_ids or []), texts=[])

    def step(self) -> StepOutput:
        output = self.loop.step()
        self.scheduler.check_integrity()
        self.outputs.append(output)
        for delta in output.deltas:
            reply = self.replies[delta.request_id]
            reply.token_ids += delta.token_ids
            reply.texts += delta.texts
            reply.text += "".join(delta.texts) + delta.tail
            assert reply.finish_reason is None, f"{delta.request_id} went on after its end"
            assert delta.index == len(reply.token_ids)
            reply.finish_reason = delta.finish_reason
            reply.error = delta.error
            reply.ends += delta.finish_reason is not None
        return output

    def run(self, most_steps: int = 10_000) -> dict[str, Reply]:
        """Step until nothing is left to do."""
        for _ in range(most_steps):
            if not self.loop.has_work:
                return self.replies
            self.step()
        raise AssertionError(f"still busy after {most_steps} steps")


def load_context_engine(config: EngineConfig, *, on_progress: Callable[[str, int, int], None]) -> LoadedEngine:
    """What tests of the process load: `model` is "context", or "context:SECONDS" for the time of one step.

    "gradual" reports its progress for a second, "slow" loads for a minute, and "broken" can't be loaded.
    """
    kind, _, step_s = config.model.partition(":")
    for part in range(50 if kind == "gradual" else 0):
        on_progress("reading", part, 50)
        time.sleep(0.02)
    if kind == "broken":
        raise ValueError("config.json: hidden_size is missing")
    if kind == "slow":
        time.sleep(60)
    harness = Harness(num_blocks=1024, block_size=config.block_size, max_num_seqs=config.max_num_seqs,
                      max_num_batched_tokens=config.max_num_batched_tokens, max_model_len=4096)
    harness.runner.step_s = float(step_s or 0)
    on_progress("reading", 50, 50)
    return LoadedEngine(loop=harness.loop, mode=config.mode, notes=(), max_model_len=4096, weights_bytes=0,
                        kv_cache_bytes=0, load_seconds=0.0)
