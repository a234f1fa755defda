"""Constrained output on the demo model: 100 replies at temperature 1.5 that all fit their JSON schema."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from inference.engine.constraints import Constraints
from inference.engine.loading import load_engine
from inference.protocol import Submit
from inference.spec import Constraint, EngineConfig, SamplingParams, SpecError
from inference.text.prompt import PromptBuilder
from inference.text.tokenizer import TextTokenizer
from tests.inference.engine.test_real_model import run

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "height": {"type": ["number", "null"], "minimum": 0, "maximum": 3},
        "likes": {"type": "array", "items": {"enum": ["chess", "音楽", "\"tea\""]}, "minItems": 1, "maxItems": 3},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "postcode": {"type": "string",
                                                                                     "pattern": "^[0-9]{5}$"}},
            "required": ["city", "postcode"], "additionalProperties": False,
        },
        "member": {"type": "boolean"},
    },
    "required": ["name", "age", "height", "likes", "address", "member"],
    "additionalProperties": False,
}  # fmt: skip


def fits(text: str) -> bool:
    """Whether a text is a PERSON, checked by hand from the meaning of each keyword (json-schema.org, 2020-12)."""
    value = json.loads(text)
    address = value["address"]
    return (
        set(value) == set(PERSON["required"]) and set(address) == {"city", "postcode"}
        and isinstance(value["name"], str) and 1 <= len(value["name"]) <= 12
        and type(value["age"]) is int and 0 <= value["age"] <= 130
        and (value["height"] is None or (type(value["height"]) in (int, float) and 0 <= value["height"] <= 3))
        and 1 <= len(value["likes"]) <= 3 and set(value["likes"]) <= {"chess", "音楽", "\"tea\""}
        and isinstance(address["city"], str) and len(address["city"]) <= 12
        and re.fullmatch("[0-9]{5}", address["postcode"]) is not None and type(value["member"]) is bool
    )  # fmt: skip


@pytest.mark.slow
def test_replies_with_100_seeds_at_temperature_1_5_all_parse_and_fit_the_schema(demo_chat_path: Path):
    loaded = load_engine(EngineConfig(model=str(demo_chat_path), max_model_len=512),
                         on_progress=lambda phase, done, total: None)
    ids = PromptBuilder.from_path(demo_chat_path).chat_ids([{"role": "user", "content": "Describe a person as JSON."}])
    constraint = Constraint(kind="json_schema", text=json.dumps(PERSON))
    submits = [Submit(request_id=str(seed), prompt_ids=ids,
                      params=SamplingParams(max_tokens=300, temperature=1.5, seed=seed, constraint=constraint))
               for seed in range(100)]
    replies = run(loaded, submits)
    texts = {"".join(reply.texts) for reply in replies.values()}
    assert all(reply.finish_reason == "stop" for reply in replies.values())
    assert all(fits(text) for text in texts)
    assert len(texts) == 100


def test_a_mask_of_the_demo_model_s_tokens_is_what_the_regex_says(demo_chat_path: Path):
    tokenizer = TextTokenizer.from_path(demo_chat_path)
    constraints = Constraints(tokenizer.backend, vocabulary=tokenizer.vocab_size, end_ids=[0, 2])
    state = constraints.start(Constraint(kind="regex", text="[0-9a-f]+"))
    for first in (True, False):
        allowed = np.flatnonzero(np.isfinite(state.allow(np.zeros(tokenizer.vocab_size, np.float32))))
        texts = (tokenizer.decode([i], skip_special_tokens=False) for i in range(tokenizer.vocab_size))
        want = [i for i, text in enumerate(texts) if re.fullmatch("[0-9a-f]+", text) or (i in (0, 2) and not first)]
        assert allowed.tolist() == want
        state.accept(want[5])


def test_a_small_text_that_would_take_long_to_compile_is_refused(demo_chat_path: Path):
    tokenizer = TextTokenizer.from_path(demo_chat_path)
    constraints = Constraints(tokenizer.backend, vocabulary=tokenizer.vocab_size, end_ids=[0, 2])
    with pytest.raises(SpecError, match="constraint: the regex can't be used: .*initial_lexer_fuel"):
        constraints.start(Constraint(kind="regex", text=r"[\w\s]{1,1000}" * 3000))
