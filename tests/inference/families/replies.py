"""Greedy replies of the real engine beside transformers' generate, and what counts as the same."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from inference.engine.loading import LoadedEngine, load_engine
from inference.protocol import Submit
from inference.spec import EngineConfig, SamplingParams

NEW_TOKENS = 48
NEAR_TIE = 1e-3  # logits; below it the two implementations' rounding may pick either token
CHUNK = 32


def prompts(vocab_size: int) -> list[list[int]]:
    """Return four prompts: short, longer than a chunk, past every window, and one that shares blocks with the third."""
    rng = np.random.default_rng(5)
    ids = [[int(token) for token in rng.integers(3, vocab_size, count)] for count in (5, 38, 90, 11)]
    return [*ids[:3], ids[2][:52] + ids[3]]


def load(folder: Path, **settings: Any) -> LoadedEngine:
    config = EngineConfig(model=str(folder), mode="float32", max_num_seqs=8, max_num_batched_tokens=CHUNK, threads=1,
                          **settings)
    return load_engine(config, on_progress=lambda phase, done, total: None)


def engine_replies(engine: LoadedEngine, prompts: list[list[int]]) -> tuple[list[list[int]], int]:
    """Run all prompts in one batch; the last is submitted when the others decode, so that it finds their blocks.

    Returns the replies and how many tokens of the last prompt came from the prefix cache.
    """
    loop, replies, cached = engine.loop, {str(i): list[int]() for i in range(len(prompts))}, 0
    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
    late = len(prompts) - 1
    for number, ids in enumerate(prompts[:late]):
        loop.submit(Submit(request_id=str(number), prompt_ids=ids, params=params))
    submitted = False
    while loop.has_work or not submitted:
        if not submitted and all(replies[str(i)] for i in range(late)):
            loop.submit(Submit(request_id=str(late), prompt_ids=prompts[late], params=params))
            submitted = True
        for delta in loop.step().deltas:
            assert not delta.error, delta.error
            replies[delta.request_id] += delta.token_ids
            if delta.finish_reason and delta.request_id == str(late) and delta.timings:
                cached = delta.timings.cached_tokens
    loop.scheduler.check_integrity()
    return list(replies.values()), cached


def generated(model: Any, prompt: list[int]) -> list[int]:
    """Return transformers' greedy reply."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS,
                             min_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
    reply: list[int] = out[0, len(prompt):].tolist()
    return reply


def near_ties(model: Any, prompts: list[list[int]], replies: list[list[int]]) -> int:
    """Return how many replies differ from generate's, first at a near-tie of the reference; fail for any other."""
    ties = 0
    for prompt, ours in zip(prompts, replies, strict=True):
        wanted = generated(model, prompt)
        assert len(ours) == len(wanted) == NEW_TOKENS
        if ours == wanted:
            continue
        at = next(i for i in range(NEW_TOKENS) if ours[i] != wanted[i])
        with torch.no_grad():
            logits = model(torch.tensor([prompt + wanted[:at]])).logits[0, -1]
        gap = float(logits[wanted[at]] - logits[ours[at]])
        assert gap < NEAR_TIE, f"prompt of {len(prompt)}: token {at} is {gap:.2g} below the reference's best"
        ties += 1
    return ties
