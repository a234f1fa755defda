"""Every native family: greedy replies of the whole engine in float32 equal transformers' generate."""

from pathlib import Path

import pytest
import torch

from tests.inference.families.cases import CASES, write_tiny_decoder
from tests.inference.families.replies import engine_replies, load, near_ties, prompts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a cold start compiles the kernels


@pytest.mark.parametrize("name", CASES)
def test_greedy_replies_equal_generate(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = write_tiny_decoder(tmp_path, **CASES[name])
    asked = prompts(model.config.vocab_size)
    replies, cached = engine_replies(load(tmp_path), asked)
    assert cached >= 48
    assert len({token for reply in replies for token in reply}) > 20  # not a comparison of one token
    ties = near_ties(model, asked, replies)
    print(f"\n{name}: {len(asked) - ties} of {len(asked)} replies equal, {ties} differ first at a near-tie")
