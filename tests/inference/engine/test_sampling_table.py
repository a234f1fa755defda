"""What sampling and text must give, one row a promise: the right value, and the source that it comes from."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from inference.choices import choice_params
from inference.engine.batch import Float32, StepBatch
from inference.engine.detokenizer import TokenText
from inference.engine.loop import EngineLoop
from inference.engine.sampler import uniform
from inference.engine.scheduler import Scheduler
from inference.protocol import SequenceDelta, Submit
from inference.spec import SamplingParams, SpecError
from inference.text.tokenizer import TextTokenizer
from tests.inference.engine.context_model import END, VOCABULARY, Harness, context_logits
from tests.inference.engine.test_loop import expected_ids, params

PROMPT = [9, 200, 9]
END_ID, OTHER_END_ID = 2, 0  # <|im_end|> and <|endoftext|> of the demo model


@cache
def demo_tokenizer(path: Path) -> TextTokenizer:
    return TextTokenizer.from_path(path)


class ScriptRunner:
    """A model that says a given reply, whatever it is told; both end ids are its next choices."""

    def __init__(self, prompt: list[int], reply: list[int], vocabulary: int) -> None:
        self.vocab_size, self.num_blocks, self.block_size = vocabulary, 64, 16
        self._script = {len(prompt) - 1 + index: token_id for index, token_id in enumerate(reply)}

    def forward(self, batch: StepBatch) -> Float32:
        logits = np.zeros((len(batch.logit_rows), self.vocab_size), np.float32)
        logits[:, [END_ID, OTHER_END_ID]] = 10, 9
        for row, position in enumerate(batch.positions[batch.logit_rows].tolist()):
            if position in self._script:
                logits[row, self._script[position]] = 20
        return logits


def say(path: Path, prompt: str | list[int], reply: str | list[int], **values) -> tuple[list[str], str | None]:
    """Run a scripted reply through the engine; return what each token showed, and why it ended."""
    tokenizer = demo_tokenizer(path)
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False) if isinstance(prompt, str) else prompt
    reply_ids = tokenizer.encode(reply, add_special_tokens=False) if isinstance(reply, str) else reply
    scheduler = Scheduler(num_blocks=64, block_size=16, max_num_seqs=2, max_num_batched_tokens=8)
    loop = EngineLoop(
        runner=ScriptRunner(prompt_ids, reply_ids, tokenizer.vocab_size), scheduler=scheduler,
        text=TokenText(tokenizer.backend, tokenizer.special_ids), eos_token_ids=[END_ID, OTHER_END_ID],
        max_model_len=1000,
    )
    loop.submit(Submit(request_id="a", prompt_ids=prompt_ids, params=params(50, **values)))
    deltas: list[SequenceDelta] = []
    while loop.has_work:
        deltas += loop.step().deltas
    return [text for delta in deltas for text in delta.texts], deltas[-1].finish_reason


def reply_of(prompt: list[int], chosen: SamplingParams) -> list[int]:
    harness = Harness(max_num_batched_tokens=64)
    harness.submit("a", prompt, chosen)
    return harness.run()["a"].token_ids


def greedy_with(processors: list, prompt: list[int], count: int) -> list[int]:
    """Greedy decoding as transformers' `generate` does it: processors, then the largest."""
    output: list[int] = []
    while len(output) < count and END not in output:
        scores = torch.from_numpy(context_logits(prompt + output)[:END + 1].copy())[None]
        output.append(int(LogitsProcessorList(processors)(torch.tensor([prompt + output]), scores).argmax()))
    return output


def split_character(path: Path) -> tuple[object, object]:
    ids = demo_tokenizer(path).encode("I saw a 🦊 in the", add_special_tokens=False)
    fox = next(place for place in range(len(ids)) if demo_tokenizer(path).decode(ids[:place]).endswith("\ufffd"))
    texts, _ = say(path, ids[:fox], ids[fox:])
    return "".join(texts), "🦊 in the"


def seven_characters(path: Path) -> tuple[object, object]:
    tokens = [demo_tokenizer(path).token_id(token) for token in ("Hi", "th", "ank", "ed", "xy")]
    assert None not in tokens
    return say(path, "q", tokens, stop=("thanked",)), (["Hi", "", "", ""], "stop")


def prefix_of_another(path: Path) -> tuple[object, object]:
    texts, reason = say(path, "q", "one END two", stop=("END two", "END"))
    return ("".join(texts), reason), ("one ", "stop")


def special_stop_string(path: Path) -> tuple[object, object]:
    words, special = "A cat", "<|im_start|>"
    ids = [*demo_tokenizer(path).encode(words, add_special_tokens=False), demo_tokenizer(path).token_id(special), 100]
    outcomes = [say(path, "q", ids, stop=(special,), **more) for more in
                ({}, {"skip_special_tokens": False}, {"skip_special_tokens": False, "include_stop": True})]
    return [("".join(texts), reason) for texts, reason in outcomes], \
        [(words, "stop"), (words, "stop"), (words + special, "stop")]


def included_stops(path: Path) -> tuple[object, object]:
    dot = demo_tokenizer(path).encode(".", add_special_tokens=False)
    outcomes = [say(path, "q", "A cat. A dog.", **more) for more in
                ({"stop": (".",)}, {"stop": (".",), "include_stop": True},
                 {"stop_token_ids": tuple(dot)}, {"stop_token_ids": tuple(dot), "include_stop": True})]
    return ["".join(texts) for texts, _ in outcomes], ["A cat", "A cat.", "A cat", "A cat."]


def two_end_ids(path: Path) -> tuple[object, object]:
    texts, reason = say(path, "q", [], min_tokens=3)
    first = demo_tokenizer(path).decode([1], skip_special_tokens=True)  # all other logits are equal: the lowest id
    ends = [END, 77]
    prompts = [[5, number] for number in range(40)]
    got = [reply_of(prompt, params(12, min_tokens=6, stop_token_ids=(77,))) for prompt in prompts]
    reference = [greedy_with([MinNewTokensLengthLogitsProcessor(2, 6, ends, device="cpu")], prompt, 12)
                 for prompt in prompts]
    right = [ids[:ids.index(77) + 1] if 77 in ids else ids for ids in reference]
    return (texts, reason, got), ([first] * 3 + [""], "stop", right)


def unseeded_neighbours(path: Path) -> tuple[object, object]:
    chosen = params(20, temperature=1.0, seed=7, ignore_eos=True)
    harness = Harness(max_num_batched_tokens=32)
    for number in range(7):
        harness.submit(str(number), PROMPT, params(20, temperature=1.0, seed=secrets.randbits(63)))
    harness.submit("seeded", PROMPT, chosen)
    return harness.run()["seeded"].token_ids, expected_ids(PROMPT, chosen)


def four_choices(path: Path) -> tuple[object, object]:
    choices = choice_params(params(20, temperature=1.0, seed=5), 4)
    runs = []
    for _ in range(2):
        harness = Harness()
        for index, choice in enumerate(choices):
            harness.submit(str(index), PROMPT, choice)
        runs.append([tuple(reply.token_ids) for reply in harness.run().values()])
    right = [tuple(expected_ids(PROMPT, choice)) for choice in choices]
    return (len(set(runs[0])), runs), (4, [right, right])


def scored(**values) -> list[tuple[list[int], SequenceDelta]]:
    """(context, delta) of each token of one reply."""
    harness = Harness(max_num_batched_tokens=64)
    harness.submit("a", PROMPT, params(10, ignore_eos=True, **values))
    harness.run()
    deltas = [delta for output in harness.outputs for delta in output.deltas if delta.token_ids]
    ids = harness.replies["a"].token_ids
    return [(PROMPT + ids[:index], delta) for index, delta in enumerate(deltas)]


def untouched_logprobs(path: Path) -> tuple[object, object]:
    got, right = [], []
    for values in ({}, {"temperature": 3.0, "top_p": 0.2}, {"temperature": 0.3, "top_k": 2, "repetition_penalty": 1.5,
                                                            "logit_bias": ((5, 9.0),)}):
        for context, delta in scored(logprobs=3, **values):
            reference = torch.log_softmax(torch.from_numpy(context_logits(context)).double(), -1)
            (token,) = delta.logprobs
            got.append((token.token_id, token.logprob, list(token.top), list(token.top.values())))
            top = torch.sort(reference, descending=True, stable=True)
            right.append((delta.token_ids[0], pytest.approx(float(reference[delta.token_ids[0]]), abs=1e-5),
                          top.indices[:3].tolist(), pytest.approx(top.values[:3].tolist(), abs=1e-5)))
    return got, right


def bias_without_text(path: Path) -> tuple[object, object]:
    unnamed = tuple((token_id, 100.0) for token_id in range(END + 1, VOCABULARY))
    got = [reply_of(PROMPT, params(12, temperature=t, logit_bias=unnamed)) for t in (0.0, 1.0)]
    with pytest.raises(SpecError, match=f"{VOCABULARY} is outside") as caught:
        reply_of(PROMPT, params(12, logit_bias=((VOCABULARY, 1.0),)))
    return [*got, caught.value.field], [expected_ids(PROMPT, params(12, temperature=t)) for t in (0.0, 1.0)] + \
        ["logit_bias"]


def repetition_scope(path: Path) -> tuple[object, object]:
    prompts = [[number % 256, 7, number * 5 % 256, 200, *range(40)] for number in range(20)]
    got = [reply_of(prompt, params(15, repetition_penalty=1.8)) for prompt in prompts]
    return got, [greedy_with([RepetitionPenaltyLogitsProcessor(1.8)], prompt, 15) for prompt in prompts]


def top_p_edges(path: Path) -> tuple[object, object]:
    got = [reply_of(PROMPT, params(10, temperature=1.0, seed=3, ignore_eos=True, top_p=top_p)) for top_p in (0, 1)]
    everything: list[int] = []
    while len(everything) < 10:
        weights = torch.softmax(torch.from_numpy(context_logits(PROMPT + everything)[:END + 1]).double(), -1)
        cumulated = np.cumsum(weights.numpy())
        everything.append(int(np.searchsorted(cumulated, uniform(3, len(everything) + 1) * cumulated[-1], "right")))
    return got, [expected_ids(PROMPT, params(10, ignore_eos=True)), everything]


def longest_prompt(path: Path) -> tuple[object, object]:
    harness = Harness(max_model_len=100)
    harness.submit("a", [3] * 99, params(50, min_tokens=20, ignore_eos=True))
    reply = harness.run()["a"]
    return (reply.token_ids, reply.finish_reason), (expected_ids([3] * 99, params(1)), "length")


@dataclass(frozen=True)
class Row:
    """A promise, the source of its right value, and what gives (the engine's value, the right one)."""

    promise: str
    source: str
    values: Callable[[Path], tuple[object, object]]


OPENAI = "OpenAI API reference, `stop`: the returned text doesn't contain the stop sequence"
ROWS = [
    Row("UTF-8 split over tokens at the prompt's end", "the text whose tokens were split", split_character),
    Row("a stop string of 7 characters over 3 tokens is never half shown", OPENAI, seven_characters),
    Row("a stop string that is a prefix of another ends the reply", OPENAI, prefix_of_another),
    Row("a special stop string stops, shown or skipped", OPENAI, special_stop_string),
    Row("what ended the reply is part of it when asked for", "vLLM: include_stop_str_in_output", included_stops),
    Row("min_tokens with two end ids", "transformers: MinNewTokensLengthLogitsProcessor", two_end_ids),
    Row("a seed with unseeded neighbours", "the slow twin: one request, no cache, no batch", unseeded_neighbours),
    Row("n=4 with a seed gives 4 different, reproducible replies", "the slow twin, seed by seed", four_choices),
    Row("logprobs unaffected by what changes the draw", "log_softmax in float64", untouched_logprobs),
    Row("a bias for ids past the tokenizer's last draws nothing", "the slow twin without it", bias_without_text),
    Row("the repetition penalty's scope is prompt and output", "transformers: RepetitionPenaltyLogitsProcessor",
        repetition_scope),
    Row("top_p 0 is greedy and 1 is off", "argmax; softmax in float64, cumulated", top_p_edges),
    Row("a prompt of max_model_len - 1 gets one token", "prompt and reply together fill the context", longest_prompt),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.promise} ({row.source})" for row in ROWS])
def test_the_engine_gives_the_right_value(row: Row, demo_chat_path: Path):
    got, right = row.values(demo_chat_path)
    assert got == right
