"""Texts that grow past longrope's original context are computed again, also when blocks are short and requests come and
go."""

from pathlib import Path

import pytest

from inference.artifacts.source import ModelSource
from inference.engine.loading import LoadedEngine
from inference.protocol import Submit
from inference.spec import SamplingParams
from tests.inference.families.cases import CASES, write_tiny_decoder
from tests.inference.families.replies import NEW_TOKENS, load
from tests.inference.models.steps import random_tokens

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels

NAME = "phi3 with longrope, across and past the original context"
SWITCH = 40  # tokens, of that model
PROMPTS = [random_tokens(seed, length, low=3, high=250) for seed, length in enumerate((1, 20, 33, 39, 40, 41, 60))]


def _run(engine: LoadedEngine, prompts: list[list[int]], resumed: list[list[int]] | None = None) -> list[list[int]]:
    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.8, seed=3, ignore_eos=True)
    replies = [list(output) for output in resumed] if resumed else [[] for _ in prompts]
    for number, (prompt, output) in enumerate(zip(prompts, replies, strict=True)):
        engine.loop.submit(Submit(request_id=str(number), prompt_ids=prompt, output_ids=list(output), params=params))
    while engine.loop.has_work:
        for delta in engine.loop.step().deltas:
            assert not delta.error, delta.error
            replies[int(delta.request_id)] += delta.token_ids
        engine.loop.scheduler.check_integrity()
    return replies


def test_replies_are_the_same_alone_preempted_and_resumed(tmp_path: Path) -> None:
    write_tiny_decoder(tmp_path, **CASES[NAME])
    assert ModelSource.open(tmp_path).decoder_spec().switch_length == SWITCH
    roomy = load(tmp_path)
    alone = [_run(roomy, [prompt])[0] for prompt in PROMPTS]
    assert _run(roomy, PROMPTS) == alone

    block = ModelSource.open(tmp_path).decoder_spec().kv_bytes_per_token() * 16
    cramped = load(tmp_path, kv_cache_bytes=20 * block)
    assert _run(cramped, PROMPTS) == alone
    assert cramped.loop.stats().preemptions > 0

    for kept in (1, 7, 20, 38):  # before, at and after the switch, in a process that knows nothing of them
        assert _run(load(tmp_path), PROMPTS, [reply[:kept] for reply in alone]) == alone
