"""Measures what speculation brings: the same requests with and without it, on a text to edit and on free writing."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from inference.engine.loop import EngineLoop
from inference.protocol import Submit
from inference.spec import SamplingParams
from inference.text.prompt import PromptBuilder

RUNS = 3
MAX_TOKENS = 256

TEXT = (
    "The harbour was quiet in the early morning. A grey boat lay at the pier, and two men mended their nets beside it. "
    "The colour of the water changed slowly from black to green. Gulls walked along the wall and waited for the first "
    "fish. Nobody spoke, because there was nothing to say that the sea did not say better. At seven o'clock the baker "
    "opened his shop, and the smell of bread came down to the boats."
)
CODE = '''def area(width, height):
    """Return the area of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("a side is negative")
    return width * height


def perimeter(width, height):
    """Return the perimeter of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("a side is negative")
    return 2 * (width + height)


def diagonal(width, height):
    """Return the diagonal of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("a side is negative")
    return (width ** 2 + height ** 2) ** 0.5
'''
PROMPTS = {
    "edit-text": f"Copy the following text, but write 'color' instead of 'colour':\n\n{TEXT}",
    "edit-code": f"Rename the parameter width to w in this Python code. Return the whole code and nothing else.\n\n"
                 f"```python\n{CODE}```",
    "write": "What is the capital of France, and what is it known for?",
}


def measure(make_loop: Callable[[bool], EngineLoop], prompts: PromptBuilder) -> Iterator[dict[str, Any]]:
    """Yield a line for each prompt: its tokens, steps and tokens per second, and how many times as fast it was.

    make_loop(speculation) gives a loop with an empty cache. Times are the fastest of RUNS, taken in turn after a
    warm-up, and include the prompt. Raises RuntimeError when the replies differ.
    """
    for name, message in PROMPTS.items():
        ids = prompts.chat_ids([{"role": "user", "content": message}])
        timed: dict[bool, list[float]] = {False: [], True: []}
        results: dict[bool, tuple[list[int], int]] = {}
        for run in range(RUNS + 1):
            for speculation, times in timed.items():
                began = time.perf_counter()
                results[speculation] = _reply(make_loop(speculation), ids)
                if run:
                    times.append(time.perf_counter() - began)
        if results[False][0] != results[True][0]:
            raise RuntimeError(f"{name}: the reply with speculation differs")
        plain, fast, tokens = min(timed[False]), min(timed[True]), len(results[True][0])
        yield {
            "workload": name, "prompt_tokens": len(ids), "new_tokens": tokens,
            "steps": results[False][1], "steps_speculation": results[True][1],
            "tokens_per_s": round(tokens / plain, 1), "tokens_per_s_speculation": round(tokens / fast, 1),
            "speedup": round(plain / fast, 2),
        }  # fmt: skip


def _reply(loop: EngineLoop, ids: list[int]) -> tuple[list[int], int]:
    """Greedy output tokens, and the steps that they took."""
    loop.submit(Submit(request_id="0", prompt_ids=ids, params=SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0)))
    output: list[int] = []
    while loop.has_work:
        for delta in loop.step().deltas:
            output += delta.token_ids
    return output, loop.stats().steps
